"""Deltas in, canonical Responses events out. Every invariant of a stream lives here.

One `ResponseBuilder` serves a whole turn, whatever number of provider calls it takes.
What deltas mean is here; how items open, grow and close is in `item_stream`. Tool calls
stay open until the provider says they are whole or the call ends.

Source: https://www.openresponses.org/specification#streaming
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from llm.errors import LLMError
from llm.wire.deltas import (
    AnnotationDelta,
    CloseDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    Key,
    ProofDelta,
    ReasoningDelta,
    RefusalDelta,
    StartDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
    merge,
)
from llm.wire.item_stream import NOTHING, ItemStream, Pieces
from llm.wire.items import Event, Item, id_prefix, new_id
from llm.wire.mending import mended_json

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})

_UNENDED = ("pause", "size")  # why an answer stops that its host has not ended
_CUTS = ("length", "size")  # why a provider's answer ends before its end
#: Characters of an event that pieces are merged into. A fast host's read holds a
#: megabyte, and a log holds small events in less memory.
_MERGED = 16_000
_NOBODY = StartDelta()  # has said who answers
#: What the schema requires of every response; a caller's `echo` overrides.
_RESPONSE: dict[str, Any] = {
    "completed_at": None,
    "incomplete_details": None,
    "previous_response_id": None,
    "instructions": None,
    "error": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": None,
    "usage": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}


class ResponseBuilder(ItemStream):
    """Builds one response. Whatever the providers do:

    * `sequence_number` runs 0, 1, 2, ... over the whole response;
    * items are added, and done, in the order of `output_index`, which is their order in
      `output`; an item's deltas come between its `added` and its `done`;
    * exactly one terminal event (`completed`, `incomplete` or `failed`) ends the
                                  stream.

    Every method returns the events it causes, oldest first. `output` holds the items
    that are done; `proofs` the raw blocks of providers, by item id.
    """

    __slots__ = (
        "_call",
        "_created_at",
        "_echo",
        "_end_state",
        "_id",
        "_in_call",
        "_model",
        "_usage",
        "ended",
        "ended_output",
        "finish",
        "start_delta",
    )

    #: False tells every piece as the provider cut it.
    merges = True

    def __init__(
        self,
        *,
        id: str,
        model: str,
        echo: Mapping[str, Any] | None = None,
        created_at: int | None = None,
        make_id: Callable[[str], str] = new_id,
    ) -> None:
        super().__init__(make_id)
        self.ended = False
        self._id, self._model = id, model
        self._created_at = int(time.time()) if created_at is None else created_at
        self._echo: Mapping[str, Any] = echo or NOTHING
        self._end_state: Mapping[str, Any] = NOTHING  # what its end changes
        self._in_call = False
        self._call: UsageDelta | None = None
        self._usage: dict[str, Any] | None = None
        self.start_delta = _NOBODY
        self.finish: FinishDelta | None = None
        #: Length of `output` when the last provider call was ended by its host. None
        #: while a call is under way, and where the last one was cut off or paused: then
        #: the model has not had its say.
        self.ended_output: int | None = None

    # Lifecycle

    def start(self) -> list[Event]:
        self._emit("response.created", response=self.response([]))
        self._emit("response.in_progress", response=self.response([]))
        return self._take()

    def restore(
        self,
        items: Iterable[Item],
        usage: dict[str, Any] | None,
        ended_output: int | None = None,
    ) -> list[Event]:
        """Tell items of this response that an earlier run has finished, whole."""
        self._usage = usage
        self.ended_output = ended_output
        for item in items:
            if "call_id" in item and item["type"] == "function_call":
                self._note_call(item["call_id"])
            self._whole(item)
        return self._take()

    def reopen(self, key: Key, item: Item) -> list[Event]:
        """Go on with an item that an earlier run has left: what was said is told again
        in one piece, and deltas of `key` lengthen it. Several may be open side by
        side."""
        opened = self._open[key] = self._begin(item)
        *parts, last = [*item.get("summary", []), *item.get("content", [])] or [None]
        for part in parts:
            self._tell_part(opened, part)
            self._close_part(opened)
        if last:
            self._tell_part(opened, last)
            opened.source_part = opened.part_index
        if item["type"] in ("message", "reasoning"):
            self._current = key
        return self._take()

    def is_open(self, key: Key) -> bool:
        return key in self._open

    def interrupt(self, key: Key, *, complete: bool = True) -> list[Event]:
        """Close an item that will not be gone on with; it stays, and says so."""
        self._open[key].item["parley:interrupted"] = True
        self._close(key, complete=complete)
        return self._take()

    def feed(self, deltas: list[Delta]) -> list[Event]:
        """What one read from the provider said; neighbouring texts become one event."""
        if self.merges and len(deltas) > 1:
            deltas = merge(deltas, _MERGED)
        for delta in deltas:
            self._DISPATCH[type(delta)](self, delta)
        events, self._out = self._out, []
        return events

    def add(self, item: Item) -> list[Event]:
        """An item that arrives whole: a tool's output, say."""
        self._whole(item)
        return self._take()

    def extension(self, type: str, **fields: Any) -> list[Event]:
        """An event outside the standard; its name begins with `parley:`."""
        self._emit(type, **fields)
        return self._take()

    def begin_call(self) -> None:
        """A provider call begins; what the last one left to read is gone."""
        self.start_delta, self.finish = _NOBODY, None
        self._call, self._in_call = None, True
        self.ended_output = None
        self._closed = NOTHING

    def end_call(self, *, whole: bool = True) -> list[Event]:
        """The provider call is over: close its items, add up its usage.

        Not `whole`: it was cut off, so what was open is incomplete. `finish`,
        `start_delta` and `call_usage` tell of it until the next one begins.
        """
        self._end_call(whole)
        return self._take()

    def _end_call(self, whole: bool) -> None:
        for calls in list(self._unnamed.values()):
            self._open_call(calls[0].key, calls, name="")
        cut = not whole or (self.finish and self.finish.reason in _CUTS)
        last = max((o.index for o in self._open.values()), default=-1)
        for key, opened in list(self._open.items()):
            complete = whole and not (cut and opened.index == last)
            self._close(key, complete=complete)
        self._current = None
        if self._in_call:
            self._in_call = False
            self._add_usage()
            if whole and self.finish and self.finish.reason not in _UNENDED:
                self.ended_output = len(self.output)

    def complete(self, reason: str | None = None) -> list[Event]:
        """The response is over: completed, or incomplete for `reason`."""
        if reason is None and self.finish:
            reason = {
                "length": "max_output_tokens",
                "content_filter": "content_filter",
                "size": "max_answer_size",
            }.get(self.finish.reason)
        self._end_call(whole=True)
        if reason:
            self._end("incomplete", incomplete_details={"reason": reason})
        else:
            self._end("completed", completed_at=int(time.time()))
        return self._take()

    def fail(self, error: LLMError) -> list[Event]:
        self._end_call(whole=False)
        payload: dict[str, Any] = {
            "type": error.type,
            "code": error.openai_code or error.code,
            "message": str(error),
            "param": error.param,
        }
        if error.retry_after is not None:
            seconds = max(0, math.ceil(error.retry_after))
            payload["headers"] = {"retry-after": str(seconds)}
        self._emit("error", error=payload)
        self._end("failed", error={"code": error.code, "message": str(error)})
        return self._take()

    def cancel(self, reason: str = "cancelled") -> list[Event]:
        self._end_call(whole=False)
        self._end("incomplete", incomplete_details={"reason": reason})
        return self._take()

    # What has been built

    @property
    def sequence(self) -> int:
        """The number the next event will carry."""
        return self._sequence

    @property
    def usage(self) -> dict[str, Any] | None:
        return self._usage

    @property
    def call_usage(self) -> UsageDelta:
        """Of the provider call under way, or the last one."""
        return self._call or UsageDelta()

    def response(self, output: list[Item] | None = None) -> dict[str, Any]:
        """The response as it stands; `output` defaults to the items done."""
        items = list(self.output) if output is None else output
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_at,
            "status": "in_progress",
            "model": self._model,
            **_RESPONSE,
            **self._echo,
            **self._end_state,
            "usage": self._usage,
            "output": items,
        }

    def partial(self) -> list[Item]:
        """The items not done yet, as they stand, by `output_index`."""
        opened = {o.index: o.snapshot() for o in self._open.values()}
        return [item for _, item in sorted({**self._waiting, **opened}.items())]

    @property
    def open_length(self) -> int:
        """Characters of the items not done yet."""
        return sum(o.text.length + o.arguments.length for o in self._open.values())

    # Deltas

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
            text = self._mend(opened, text)
        if not text:
            return
        if opened.part is None or opened.part["type"] != "output_text":
            self._open_part(opened, _output_text())
        opened.text.append(text)
        # Nearly all events are this one: no detour by way of `_emit`.
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
        if text := self._mend(opened, delta.text):
            if opened.part is None or opened.part["type"] != "refusal":
                self._open_part(opened, {"type": "refusal", "refusal": ""})
            opened.text.append(text)
            self._emit("response.refusal.delta", **self._at(opened), delta=text)

    def _annotation(self, delta: AnnotationDelta) -> None:
        opened = self._open.get(delta.key) or self._open_message(delta.key, None)
        if opened.part is None or opened.part["type"] != "output_text":
            self._open_part(opened, _output_text())
        assert opened.part is not None
        annotations = [*opened.part["annotations"], delta.annotation]
        opened.part = {**opened.part, "annotations": annotations}
        self._emit(
            "response.output_text.annotation.added",
            **self._at(opened),
            annotation_index=len(annotations) - 1,
            annotation=delta.annotation,
        )

    def _reasoning(self, delta: ReasoningDelta) -> None:
        opened = self._open.get(delta.key)
        if opened is None:
            opened = self._open_reasoning(delta.key)
        if not (text := self._mend(opened, delta.text)):
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
        elif text := self._mend(opened, delta.arguments):
            self._arguments(opened, text)

    def _item(self, delta: ItemDelta) -> None:
        opened = self._open.get(delta.key)
        if opened is None:
            prefix = id_prefix(delta.item["type"])
            opened = self._add(delta.key, prefix, dict(delta.item))
        opened.item = {**opened.item, **delta.item}
        if delta.done:
            self._close(delta.key, status=delta.item.get("status"))

    def _proof(self, delta: ProofDelta) -> None:
        if (opened := self._open.get(delta.key)) is None:
            # OpenRouter proves its reasoning after the message that followed it.
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
            opened.arguments = Pieces()
            opened.arguments.append(self._mend(opened, delta.arguments))
        self._close(delta.key, complete=delta.complete)

    def _usage_delta(self, delta: UsageDelta) -> None:
        call = self._call = self._call or UsageDelta()
        for name in UsageDelta.__slots__:
            if (value := getattr(delta, name)) is not None:
                setattr(call, name, value)

    def _finish(self, delta: FinishDelta) -> None:
        self.finish = delta

    _DISPATCH: dict[type, Callable[[ResponseBuilder, Any], None]] = {
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

    # The end

    def _end(self, status: str, **state: Any) -> None:
        assert not self.ended, "a response ends once"
        self.ended = True
        self._end_state = {"status": status, **state}
        self._emit(f"response.{status}", response=self.response())

    def _add_usage(self) -> None:
        call = self.call_usage
        if call.input_tokens is None and call.output_tokens is None:
            return
        total = self._usage or {
            "input_tokens": 0,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 0,
        }
        read, written = call.input_tokens or 0, call.output_tokens or 0
        cached = total["input_tokens_details"]["cached_tokens"]
        reasoned = total["output_tokens_details"]["reasoning_tokens"]
        self._usage = {
            "input_tokens": total["input_tokens"] + read,
            "input_tokens_details": {
                "cached_tokens": cached + (call.cached_tokens or 0)
            },
            "output_tokens": total["output_tokens"] + written,
            "output_tokens_details": {
                "reasoning_tokens": reasoned + (call.reasoning_tokens or 0)
            },
            "total_tokens": total["total_tokens"] + read + written,
        }


def _output_text() -> dict[str, Any]:
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def arguments_of(call: Item) -> dict[str, Any]:
    """The parsed arguments of a function call.

    Raises ValueError, with a sentence for the model, where they are no JSON object.
    """
    try:
        arguments = orjson.loads(call["arguments"] or "{}")
    except orjson.JSONDecodeError as exc:
        raise ValueError(f"the arguments are not valid JSON: {exc}.") from exc
    if not isinstance(arguments, dict):
        raise ValueError("the arguments must be a JSON object.")
    return dict(mended_json(arguments))
