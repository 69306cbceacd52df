"""The builder of a response: deltas in, canonical Responses events out.

One `ResponseBuilder` serves a whole turn with any number of provider calls, and
guarantees every invariant of the stream. This module begins and ends provider calls and
the response; `delta_item_stream` interprets deltas; `item_stream` opens, grows and
closes items. Tool calls stay open until the provider says that they are complete or the
call ends.

Source: https://www.openresponses.org/specification#streaming
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from llm.errors import LLMError
from llm.wire import bounded_json
from llm.wire.delta_item_stream import UNKNOWN_START, DeltaItemStream
from llm.wire.deltas import (
    Key,
    UsageDelta,
)
from llm.wire.item_stream import EMPTY_DICT
from llm.wire.items import Event, Item, new_id
from llm.wire.sanitize import sanitize_json

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})

_NOT_ENDED_BY_HOST = ("pause", "size")  # the provider itself has not ended the answer
_CUTS = ("length", "size")  # the answer was cut off before its end
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


class ResponseBuilder(DeltaItemStream):
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
        "_content_end",
        "_created_at",
        "_echo",
        "_end_state",
        "_extensions",
        "_extensions_end",
        "_id",
        "_in_call",
        "_model",
        "_usage",
        "ended",
        "ended_output",
    )

    def __init__(
        self,
        *,
        id: str,
        model: str,
        echo: Mapping[str, Any] | None = None,
        created_at: int | None = None,
        make_id: Callable[[str], str] = new_id,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """With a `clock`, items of reasoning say how many seconds they took."""
        super().__init__(make_id, clock)
        self.start_delta, self.finish, self._call = UNKNOWN_START, None, None
        self.ended = False
        self._id, self._model = id, model
        self._created_at = int(time.time()) if created_at is None else created_at
        self._echo: Mapping[str, Any] = echo or EMPTY_DICT
        self._end_state: Mapping[str, Any] = EMPTY_DICT  # fields set at its end
        self._extensions: Mapping[str, Any] = EMPTY_DICT  # fields of our own
        #: The numbers of the events after the last extensions, and before these.
        self._extensions_end = self._content_end = -1
        self._in_call = False
        self._usage: dict[str, Any] | None = None
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
        self._begin_time(opened)
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

    def add(self, item: Item) -> list[Event]:
        """Add an item that arrives complete, e.g. a tool's output."""
        self._add_whole(item)
        return self._take()

    def extension(self, type: str, **fields: Any) -> list[Event]:
        """Emit an event outside the standard; `type` begins with `parley:`."""
        if self._sequence != self._extensions_end:
            self._content_end = self._sequence
        self._emit(type, **fields)
        self._extensions_end = self._sequence
        return self._take()

    def set_extension_field(self, name: str, value: Any) -> None:
        """Set a field outside the standard in the response; `name` begins with
        `parley`."""
        self._extensions = {**self._extensions, name: value}

    def begin_call(self) -> None:
        """Begin a provider call and reset what the last one left in the attributes."""
        self.start_delta, self.finish = UNKNOWN_START, None
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
            self.add_usage(self.call_usage)
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
        ending: dict[str, Any] = {"code": error.code, "message": str(error)}
        if host := error.host_report:
            payload["host"] = ending["host"] = host
        self._emit("error", error=payload)
        self._end("failed", error=ending)
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
    def content_sequence(self) -> int:
        """The number of the last event within the standard, -1 if there is none."""
        is_last = self._sequence == self._extensions_end
        return (self._content_end if is_last else self._sequence) - 1

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
            **self._extensions,
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

    # The end

    def _end(self, status: str, **state: Any) -> None:
        assert not self.ended, "a response ends once"
        self.ended = True
        self._end_state = {"status": status, **state}
        self._emit(f"response.{status}", response=self.response())

    def add_usage(self, call: UsageDelta) -> None:
        """Count the tokens of a provider call in the response's usage."""
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
        before = total["input_tokens_details"]
        details = {"cached_tokens": before["cached_tokens"] + (call.cached_tokens or 0)}
        cached_anew = before.get("cache_write_tokens", 0)
        if cached_anew := cached_anew + (call.cache_write_tokens or 0):
            details["cache_write_tokens"] = cached_anew
        reasoned = total["output_tokens_details"]["reasoning_tokens"]
        self._usage = {
            "input_tokens": total["input_tokens"] + read,
            "input_tokens_details": details,
            "output_tokens": total["output_tokens"] + written,
            "output_tokens_details": {
                "reasoning_tokens": reasoned + (call.reasoning_tokens or 0)
            },
            "total_tokens": total["total_tokens"] + read + written,
        }


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
    # A person would approve, and a tool receive, another number than the model wrote.
    if digits := bounded_json.find_long_integer(call["arguments"]):
        raise ValueError(
            f"the integer {digits[:40]} is beyond 64 bits and would be rounded;"
            " write it as text where the parameter takes text."
        )
    return dict(sanitize_json(arguments))
