"""The builder of a response: deltas in, canonical Responses events out.

One `ResponseBuilder` serves a whole turn with any number of provider calls, and
guarantees every invariant of the stream. This module interprets deltas; `item_stream`
opens, grows and closes items. Tool calls stay open until the provider says that they
are complete or the call ends.

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
from llm.wire.item_stream import EMPTY_DICT, ItemStream, TextBuffer
from llm.wire.items import Event, Item, id_prefix, new_id
from llm.wire.sanitize import sanitize_json

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})

_NOT_ENDED_BY_HOST = ("pause", "size")  # the provider itself has not ended the answer
_CUTS = ("length", "size")  # the answer was cut off before its end
#: Characters up to which pieces are merged into one event. One read from a fast host
#: holds a megabyte, and a log stores small events in less memory.
_MERGED = 16_000
_UNKNOWN_START = StartDelta()  # no response id or model yet
#: Fields that the schema requires of every response; a caller's `echo` overrides.
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
    that are done; `proofs` the providers' raw blocks, by item id.
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

    #: False emits every piece as the provider cut it.
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
        self._echo: Mapping[str, Any] = echo or EMPTY_DICT
        self._end_state: Mapping[str, Any] = EMPTY_DICT  # fields set at its end
        self._in_call = False
        self._call: UsageDelta | None = None
        self._usage: dict[str, Any] | None = None
        self.start_delta = _UNKNOWN_START
        self.finish: FinishDelta | None = None
        #: Length of `output` when the provider ended its last call. None while a call
        #: is running, and if the last one was cut off or paused, because then the model
        #: has not finished.
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
        """Add finished items of an earlier run of this response, with all their
        events."""
        self._usage = usage
        self.ended_output = ended_output
        for item in items:
            if "call_id" in item and item["type"] == "function_call":
                self._note_call(item["call_id"])
            self._add_whole(item)
        return self._take()

    def reopen(self, key: Key, item: Item) -> list[Event]:
        """Reopen an unfinished item of an earlier run.

        Its content so far is emitted again in one piece, and deltas of `key` lengthen
        it. Several may be open side by side.
        """
        opened = self._open[key] = self._begin(item)
        *parts, last = [*item.get("summary", []), *item.get("content", [])] or [None]
        for part in parts:
            self._emit_part(opened, part)
            self._close_part(opened)
        if last:
            self._emit_part(opened, last)
            opened.source_part = opened.part_index
        if item["type"] in ("message", "reasoning"):
            self._current = key
        return self._take()

    def is_open(self, key: Key) -> bool:
        return key in self._open

    def interrupt(self, key: Key, *, complete: bool = True) -> list[Event]:
        """Close an item that will not be continued; it stays and is marked as
        interrupted."""
        self._open[key].item["parley:interrupted"] = True
        self._close(key, complete=complete)
        return self._take()

    def feed(self, deltas: list[Delta]) -> list[Event]:
        """Add the deltas of one read; neighbouring pieces of a text become one
        event."""
        if self.merges and len(deltas) > 1:
            deltas = merge(deltas, _MERGED)
        for delta in deltas:
            self._DISPATCH[type(delta)](self, delta)
        events, self._out = self._out, []
        return events

    def add(self, item: Item) -> list[Event]:
        """Add an item that arrives complete, e.g. a tool's output."""
        self._add_whole(item)
        return self._take()

    def extension(self, type: str, **fields: Any) -> list[Event]:
        """Emit an event outside the standard; `type` begins with `parley:`."""
        self._emit(type, **fields)
        return self._take()

    def begin_call(self) -> None:
        """Begin a provider call and reset what the last one left in the attributes."""
        self.start_delta, self.finish = _UNKNOWN_START, None
        self._call, self._in_call = None, True
        self.ended_output = None
        self._closed = EMPTY_DICT

    def end_call(self, *, whole: bool = True) -> list[Event]:
        """End the provider call: close its items, add up its usage.

        With `whole=False` it was cut off, so open items become incomplete. `finish`,
        `start_delta` and `call_usage` describe the call until the next one begins.
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
            if whole and self.finish and self.finish.reason not in _NOT_ENDED_BY_HOST:
                self.ended_output = len(self.output)

    def complete(self, reason: str | None = None) -> list[Event]:
        """End the response: as completed, or as incomplete for `reason`."""
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

    # The state of the response

    @property
    def sequence(self) -> int:
        """The number of the next event."""
        return self._sequence

    @property
    def usage(self) -> dict[str, Any] | None:
        return self._usage

    @property
    def call_usage(self) -> UsageDelta:
        """Usage of the current provider call, or of the last one."""
        return self._call or UsageDelta()

    def response(self, output: list[Item] | None = None) -> dict[str, Any]:
        """The response as it is now; `output` defaults to the items that are done."""
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
        """The items that are not done, in their current state, by `output_index`."""
        opened = {o.index: o.snapshot() for o in self._open.values()}
        return [item for _, item in sorted({**self._waiting, **opened}.items())]

    @property
    def open_length(self) -> int:
        """Characters of the items that are not done."""
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
        opened.item = {**opened.item, **delta.item}
        if delta.done:
            self._close(delta.key, status=delta.item.get("status"))

    def _proof(self, delta: ProofDelta) -> None:
        if (opened := self._open.get(delta.key)) is None:
            # OpenRouter sends the reasoning's proof after the message that follows it.
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

    Raises ValueError with a message for the model if they are not a JSON object.
    """
    try:
        arguments = orjson.loads(call["arguments"] or "{}")
    except orjson.JSONDecodeError as exc:
        raise ValueError(f"the arguments are not valid JSON: {exc}.") from exc
    if not isinstance(arguments, dict):
        raise ValueError("the arguments must be a JSON object.")
    return dict(sanitize_json(arguments))
