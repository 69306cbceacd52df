"""Interpreter of one provider call's deltas: they open, grow and close items."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    merge,
)
from llm.wire.item_stream import ItemStream, TextBuffer
from llm.wire.items import Event, id_prefix

#: Characters up to which pieces are merged into one event. One read from a fast host
#: holds a megabyte, and a log stores small events in less memory.
_MERGED = 16_000
UNKNOWN_START = StartDelta()  # no response id or model yet


class DeltaItemStream(ItemStream):
    """The items of a response, written by deltas.

    `ResponseBuilder` adds the rest, and resets these attributes at the beginning of
    each provider call.
    """

    __slots__ = ("_call", "finish", "start_delta")

    _call: UsageDelta | None  # usage of the current provider call
    start_delta: StartDelta
    finish: FinishDelta | None

    #: False emits every piece as the provider cut it.
    merges = True

    def feed(self, deltas: list[Delta]) -> list[Event]:
        """Add the deltas of one read; neighbouring pieces of a text become one
        event."""
        if self.merges and len(deltas) > 1:
            deltas = merge(deltas, _MERGED)
        for delta in deltas:
            self._DISPATCH[type(delta)](self, delta)
        events, self._out = self._out, []
        return events

    def _start(self, delta: StartDelta) -> None:
        self.start_delta = StartDelta(
            delta.response_id or self.start_delta.response_id,
            delta.model or self.start_delta.model,
        )

    def _text(self, delta: TextDelta) -> None:
        opened = self._open.get(delta.key)
        if opened is None:
            opened = self._open_message(delta.key, delta.phase)
        text = delta.text
        if opened.pending or not text.isascii() or "\0" in text:
            text = self._sanitize(opened, text)
        if not text:
            return
        if opened.part is None or opened.part["type"] != "output_text":
            self._open_part(opened, _output_text())
        opened.text.append(text)
        # Nearly all events are this one, so it does without `_emit`.
        number, self._sequence = self._sequence, self._sequence + 1
        self._out.append(
            {
                "type": "response.output_text.delta",
                "sequence_number": number,
                "item_id": opened.item["id"],
                "output_index": opened.index,
                "content_index": opened.part_index,
                "delta": text,
                "logprobs": [],
            }
        )

    def _refusal(self, delta: RefusalDelta) -> None:
        opened = self._open.get(delta.key) or self._open_message(delta.key, None)
        if text := self._sanitize(opened, delta.text):
            if opened.part is None or opened.part["type"] != "refusal":
                self._open_part(opened, {"type": "refusal", "refusal": ""})
            opened.text.append(text)
            self._emit("response.refusal.delta", **self._at(opened), delta=text)

    def _annotation(self, delta: AnnotationDelta) -> None:
        opened = self._open.get(delta.key) or self._open_message(delta.key, None)
        if opened.part is None or opened.part["type"] != "output_text":
            self._open_part(opened, _output_text())
        assert opened.part is not None
        if opened.annotations is None:  # events have been sent with the part's list
            opened.annotations = [*opened.part["annotations"]]
            opened.part = {**opened.part, "annotations": opened.annotations}
        opened.annotations.append(delta.annotation)
        self._emit(
            "response.output_text.annotation.added",
            **self._at(opened),
            annotation_index=len(opened.annotations) - 1,
            annotation=delta.annotation,
        )

    def _reasoning(self, delta: ReasoningDelta) -> None:
        opened = self._open.get(delta.key)
        if opened is None:
            opened = self._open_reasoning(delta.key)
        if not (text := self._sanitize(opened, delta.text)):
            return
        kind = "summary_text" if delta.kind == "summary" else "reasoning_text"
        part = opened.part
        if part is None or part["type"] != kind or opened.source_part != delta.part:
            self._open_part(opened, {"type": kind, "text": ""})
            opened.source_part = delta.part
        opened.text.append(text)
        if kind == "summary_text":
            self._emit(
                "response.reasoning_summary_text.delta",
                item_id=opened.item["id"],
                output_index=opened.index,
                summary_index=opened.part_index,
                delta=text,
            )
        else:
            self._emit("response.reasoning.delta", **self._at(opened), delta=text)

    def _tool_call(self, delta: ToolCallDelta) -> None:
        opened = self._open.get(delta.key)
        if opened is None:
            self._unnamed = self._unnamed or {}
            calls = self._unnamed.setdefault(delta.key, [])
            calls.append(delta)
            if delta.name:
                self._open_call(delta.key, calls, delta.name)
        elif text := self._sanitize(opened, delta.arguments):
            self._arguments(opened, text)

    def _item(self, delta: ItemDelta) -> None:
        opened = self._open.get(delta.key)
        if opened is None:
            prefix = id_prefix(delta.item["type"])
            opened = self._add(delta.key, prefix, dict(delta.item))
        opened.update(delta.item)
        if delta.done:
            self._close(delta.key, status=delta.item.get("status"))

    def _proof(self, delta: ProofDelta) -> None:
        if (opened := self._open.get(delta.key)) is None:
            # OpenRouter sends a rest of the reasoning's proof after the message that
            # follows it; the decoder emits the complete proof again.
            if (id := self._closed.get(delta.key)) is not None:
                self.proofs[id] = delta.raw
                return
            opened = self._open_reasoning(delta.key)
        self.proofs[opened.item["id"]] = delta.raw

    def _close_delta(self, delta: CloseDelta) -> None:
        if (opened := self._open.get(delta.key)) is None:
            return
        if delta.arguments is not None and opened.item["type"] == "function_call":
            opened.pending = ""
            opened.arguments = TextBuffer()
            opened.arguments.append(self._sanitize(opened, delta.arguments))
        self._close(delta.key, complete=delta.complete)

    def _usage_delta(self, delta: UsageDelta) -> None:
        call = self._call = self._call or UsageDelta()
        for name in UsageDelta.__slots__:
            if (value := getattr(delta, name)) is not None:
                setattr(call, name, value)

    def _finish(self, delta: FinishDelta) -> None:
        self.finish = delta

    _DISPATCH: dict[type, Callable[[DeltaItemStream, Any], None]] = {
        StartDelta: _start,
        TextDelta: _text,
        RefusalDelta: _refusal,
        AnnotationDelta: _annotation,
        ReasoningDelta: _reasoning,
        ToolCallDelta: _tool_call,
        ItemDelta: _item,
        ProofDelta: _proof,
        CloseDelta: _close_delta,
        UsageDelta: _usage_delta,
        FinishDelta: _finish,
    }


def _output_text() -> dict[str, Any]:
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
