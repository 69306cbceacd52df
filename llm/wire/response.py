"""Deltas in, canonical Responses events out. Every invariant of a stream lives here.

One `ResponseBuilder` serves a whole turn, whatever number of provider calls it takes.
Theory of operation: an item is *open* from its first delta to its last. Message and
reasoning items follow one another, so opening one closes the last; tool calls may be
open side by side until the provider says they are whole or the call ends. `done` is
told in the order of `output_index`, so a closed item may wait for an earlier one. An
event is a fresh dict that nobody changes afterwards; text is kept as a list and joined
once.

Source: https://www.openresponses.org/specification#streaming
"""

from __future__ import annotations

import re
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
from llm.wire.items import Event, Item, new_id

TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
_SURROGATE = re.compile("[\ud800-\udfff]")

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


class _Open:
    """An item not yet done: its skeleton and the text that has come so far."""

    __slots__ = (
        "arguments",
        "closed",
        "index",
        "item",
        "part",
        "part_index",
        "pending",
        "source_part",
        "text",
    )

    def __init__(self, index: int, item: Item) -> None:
        self.index = index
        self.item = item
        self.part: dict[str, Any] | None = None  # the content part being written
        self.part_index = -1
        self.source_part = 0  # its number as the provider counts
        self.text: list[str] = []  # of that part
        self.arguments: list[str] = []
        self.pending = ""  # half a surrogate pair
        self.closed = False

    def snapshot(self) -> Item:
        """The item as it stands, with text that is not closed yet."""
        item = dict(self.item)
        if item["type"] == "function_call":
            item["arguments"] = "".join(self.arguments)
        elif self.part is not None:
            field = "summary" if self.part["type"] == "summary_text" else "content"
            part = {**self.part, _text_field(self.part): "".join(self.text)}
            item[field] = [*item[field][:-1], part]
        return item


class ResponseBuilder:
    """Builds one response. Whatever the providers do:

    * `sequence_number` runs 0, 1, 2, ... over the whole response;
    * items are added, and done, in the order of `output_index`, which is their order in
      `output`; an item's deltas come between its `added` and its `done`;
    * exactly one terminal event (`completed`, `incomplete` or `failed`) ends the
                                  stream.

    Every method returns the events it causes, oldest first. `output` holds the items
    that are done; `proofs` the raw blocks of providers, by item id.
    """

    def __init__(
        self,
        *,
        id: str,
        model: str,
        echo: Mapping[str, Any] | None = None,
        created_at: int | None = None,
        make_id: Callable[[str], str] = new_id,
    ) -> None:
        self.output: list[Item] = []
        self.done_at: list[int] = []  # sequence number of each item's `done`
        self.proofs: dict[str, Any] = {}
        self.ended = False
        self._response: dict[str, Any] = {
            "id": id,
            "object": "response",
            "created_at": int(time.time()) if created_at is None else created_at,
            "status": "in_progress",
            "model": model,
            **_RESPONSE,
            **(echo or {}),
        }
        self._make_id = make_id
        self._out: list[Event] = []
        self._sequence = 0
        self._count = 0  # items added
        self._open: dict[Key, _Open] = {}
        self._closed: dict[Key, str] = {}  # ids of this call's closed items
        self._current: Key | None = None  # the open message or reasoning item
        self._unnamed: dict[
            Key, list[ToolCallDelta]
        ] = {}  # calls whose name is to come
        self._waiting: dict[int, Item] = {}  # closed, behind one still open
        self._call_ids: set[str] = set()
        self._in_call = False
        self._call = UsageDelta()
        self._usage: dict[str, Any] | None = None
        self.start_delta = StartDelta()
        self.finish: FinishDelta | None = None

    # Lifecycle

    def start(self) -> list[Event]:
        self._emit("response.created", response=self.response([]))
        self._emit("response.in_progress", response=self.response([]))
        return self._take()

    def restore(
        self, items: Iterable[Item], usage: dict[str, Any] | None
    ) -> list[Event]:
        """Tell items of this response that an earlier run has finished, whole."""
        self._usage = usage
        for item in items:
            if "call_id" in item and item["type"] == "function_call":
                self._call_ids.add(item["call_id"])
            self._whole(item)
        return self._take()

    def reopen(self, key: Key, item: Item) -> list[Event]:
        """Go on with an item that an earlier run has left open: what was said is told
        again in one piece, and deltas of `key` lengthen it."""
        self._close_current()
        opened = self._open[key] = self._begin(item)
        *parts, last = [*item.get("summary", []), *item.get("content", [])] or [None]
        for part in parts:
            self._tell_part(opened, part)
            self._close_part(opened)
        if last:
            self._tell_part(opened, last)
        self._current = key
        return self._take()

    def interrupt(self, key: Key) -> list[Event]:
        """Close an item that will not be gone on with; it stays, and says so."""
        self._open[key].item["parley:interrupted"] = True
        self._close(key)
        return self._take()

    def feed(self, deltas: list[Delta]) -> list[Event]:
        """What one read from the provider said; neighbouring texts become one event."""
        for delta in merge(deltas) if len(deltas) > 1 else deltas:
            self._DISPATCH[type(delta)](self, delta)
        return self._take()

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
        self.start_delta, self.finish = StartDelta(), None
        self._call, self._in_call = UsageDelta(), True
        self._closed = {}

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
        cut = not whole or (self.finish and self.finish.reason == "length")
        last = max((o.index for o in self._open.values()), default=-1)
        for key, opened in list(self._open.items()):
            complete = whole and not (cut and opened.index == last)
            self._close(key, complete=complete)
        self._current = None
        if self._in_call:
            self._in_call = False
            self._add_usage()

    def complete(self, reason: str | None = None) -> list[Event]:
        """The response is over: completed, or incomplete for `reason`."""
        if reason is None and self.finish:
            reason = {
                "length": "max_output_tokens",
                "content_filter": "content_filter",
            }.get(self.finish.reason)
        self._end_call(whole=True)
        if reason:
            self._response["incomplete_details"] = {"reason": reason}
        self._end("incomplete" if reason else "completed")
        return self._take()

    def fail(self, error: LLMError) -> list[Event]:
        self._end_call(whole=False)
        payload = {
            "type": error.type,
            "code": error.openai_code or error.code,
            "message": str(error),
            "param": error.param,
        }
        self._emit("error", error=payload)
        self._response["error"] = {"code": error.code, "message": str(error)}
        self._end("failed")
        return self._take()

    def cancel(self, reason: str = "cancelled") -> list[Event]:
        self._end_call(whole=False)
        self._response["incomplete_details"] = {"reason": reason}
        self._end("incomplete")
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
        return self._call

    def response(self, output: list[Item] | None = None) -> dict[str, Any]:
        """The response as it stands; `output` defaults to the items done."""
        items = list(self.output) if output is None else output
        return {**self._response, "usage": self._usage, "output": items}

    def partial(self) -> list[Item]:
        """The items not done yet, as they stand, by `output_index`."""
        opened = {o.index: o.snapshot() for o in self._open.values()}
        return [item for _, item in sorted({**self._waiting, **opened}.items())]

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
        if text := self._mend(opened, delta.text):
            if opened.part is None or opened.part["type"] != "output_text":
                self._open_part(
                    opened,
                    {
                        "type": "output_text",
                        "text": "",
                        "annotations": [],
                        "logprobs": [],
                    },
                )
            opened.text.append(text)
            self._emit(
                "response.output_text.delta",
                item_id=opened.item["id"],
                output_index=opened.index,
                content_index=opened.part_index,
                delta=text,
                logprobs=[],
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
            calls = self._unnamed.setdefault(delta.key, [])
            calls.append(delta)
            if delta.name:
                self._open_call(delta.key, calls, delta.name)
        elif text := self._mend(opened, delta.arguments):
            self._arguments(opened, text)

    def _item(self, delta: ItemDelta) -> None:
        opened = self._open.get(delta.key)
        if opened is None:
            prefix = delta.item["type"].removesuffix("_call")
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
        if delta.key in self._open:
            self._close(delta.key, complete=delta.complete)

    def _usage_delta(self, delta: UsageDelta) -> None:
        for name in UsageDelta.__slots__:
            if (value := getattr(delta, name)) is not None:
                setattr(self._call, name, value)

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

    # Opening

    def _open_message(self, key: Key, phase: str | None) -> _Open:
        self._close_current()
        message: Item = {"type": "message", "role": "assistant", "content": []}
        if phase:
            message["phase"] = phase
        self._current = key
        return self._add(key, "msg", message)

    def _open_reasoning(self, key: Key) -> _Open:
        self._close_current()
        self._current = key
        return self._add(key, "rs", {"type": "reasoning", "summary": [], "content": []})

    def _open_call(self, key: Key, calls: list[ToolCallDelta], name: str) -> None:
        self._unnamed.pop(key, None)
        self._close_current()
        given = next((call.call_id for call in calls if call.call_id), "")
        call = {
            "type": "function_call",
            "call_id": self._unique(given),
            "name": name,
            "arguments": "",
        }
        opened = self._add(key, "fc", call)
        text = self._mend(opened, "".join(call.arguments for call in calls))
        if text:
            self._arguments(opened, text)

    def _add(self, key: Key, prefix: str, fields: Item) -> _Open:
        item = {
            "type": fields["type"],
            "id": self._make_id(prefix),
            "status": "in_progress",
            **fields,
        }
        opened = self._open[key] = _Open(self._count, item)
        self._count += 1
        self._emit(
            "response.output_item.added", output_index=opened.index, item=dict(item)
        )
        return opened

    def _open_part(self, opened: _Open, part: dict[str, Any]) -> None:
        self._close_part(opened)
        field = "summary" if part["type"] == "summary_text" else "content"
        opened.item = {**opened.item, field: [*opened.item[field], part]}
        opened.part = part
        opened.part_index = len(opened.item[field]) - 1
        if field == "summary":
            self._emit("response.reasoning_summary_part.added", **self._at(opened))
        else:
            self._emit("response.content_part.added", **self._at(opened), part=part)

    def _arguments(self, opened: _Open, text: str) -> None:
        opened.arguments.append(text)
        self._emit(
            "response.function_call_arguments.delta",
            item_id=opened.item["id"],
            output_index=opened.index,
            delta=text,
        )

    # Closing

    def _close_current(self) -> None:
        if self._current in self._open:
            self._close(self._current)
        self._current = None

    def _close_part(self, opened: _Open) -> None:
        if opened.part is None:
            return
        if opened.pending:  # the other half never came
            opened.text.append("\ufffd")
            opened.pending = ""
        text = "".join(opened.text)
        part = {**opened.part, _text_field(opened.part): text}
        field = "summary" if part["type"] == "summary_text" else "content"
        opened.item = {**opened.item, field: [*opened.item[field][:-1], part]}
        at = self._at(opened)
        match part["type"]:
            case "output_text":
                self._emit("response.output_text.done", **at, text=text, logprobs=[])
            case "refusal":
                self._emit("response.refusal.done", **at, refusal=text)
            case "reasoning_text":
                self._emit("response.reasoning.done", **at, text=text)
            case "summary_text":
                at.pop("part")
                self._emit("response.reasoning_summary_text.done", **at, text=text)
        name = "reasoning_summary_part" if field == "summary" else "content_part"
        self._emit(f"response.{name}.done", **{**at, "part": part})
        opened.part, opened.text = None, []

    def _close(
        self, key: Key, *, complete: bool = True, status: str | None = None
    ) -> None:
        opened = self._open.pop(key)
        self._closed[key] = opened.item["id"]
        if opened.item["type"] == "function_call":
            complete = self._close_arguments(opened, complete)
        self._close_part(opened)
        opened.item = {
            **opened.item,
            "status": status or ("completed" if complete else "incomplete"),
        }
        self._waiting[opened.index] = opened.item
        self._tell_done()

    def _close_arguments(self, opened: _Open, complete: bool) -> bool:
        """False where the call must never be run."""
        text = "".join(opened.arguments)
        if complete and text.strip() in ("", "null"):
            text = "{}"
        opened.item = {**opened.item, "arguments": text}
        self._emit(
            "response.function_call_arguments.done",
            item_id=opened.item["id"],
            output_index=opened.index,
            arguments=text,
        )
        return complete and bool(opened.item["name"])

    def _whole(self, item: Item) -> None:
        """An item that is done as it comes, told with its content."""
        opened = self._begin(item)
        if item["type"] == "function_call":
            self._arguments(opened, item["arguments"])
            self._emit(
                "response.function_call_arguments.done",
                item_id=item["id"],
                output_index=opened.index,
                arguments=item["arguments"],
            )
        elif item["type"] in ("message", "reasoning"):
            for part in [*item.get("summary", []), *item.get("content", [])]:
                self._tell_part(opened, part)
                self._close_part(opened)
        self._waiting[opened.index] = item
        self._tell_done()

    def _begin(self, item: Item) -> _Open:
        """Tell `item` added, empty; its content is told after."""
        opened = _Open(self._count, {**item, "status": "in_progress"})
        self._count += 1
        for field in ("content", "summary"):
            if isinstance(item.get(field), list):
                opened.item[field] = []
        if item["type"] == "function_call":
            opened.item["arguments"] = ""
        self._emit(
            "response.output_item.added",
            output_index=opened.index,
            item=dict(opened.item),
        )
        return opened

    def _tell_part(self, opened: _Open, part: dict[str, Any]) -> None:
        """Open `part` with all its text; it stays open."""
        if (field := _text_field(part)) not in part:
            return
        self._open_part(opened, {**part, field: ""})
        if not (text := part[field]):
            return
        opened.text.append(text)
        at = self._at(opened)
        match part["type"]:
            case "output_text":
                self._emit("response.output_text.delta", **at, delta=text, logprobs=[])
            case "refusal":
                self._emit("response.refusal.delta", **at, delta=text)
            case "reasoning_text":
                self._emit("response.reasoning.delta", **at, delta=text)
            case "summary_text":
                at.pop("part")
                self._emit("response.reasoning_summary_text.delta", **at, delta=text)

    def _tell_done(self) -> None:
        """Report closed items done, once every item before them is."""
        while (item := self._waiting.pop(len(self.output), None)) is not None:
            self.done_at.append(self._sequence)
            self._emit(
                "response.output_item.done", output_index=len(self.output), item=item
            )
            self.output.append(item)

    def _end(self, status: str) -> None:
        assert not self.ended, "a response ends once"
        self.ended = True
        self._response["status"] = status
        if status == "completed":
            self._response["completed_at"] = int(time.time())
        self._emit(f"response.{status}", response=self.response())

    # Plumbing

    def _unique(self, call_id: str) -> str:
        """The provider's id where it is usable and new in this response."""
        if not call_id or len(call_id) > 64 or call_id in self._call_ids:
            call_id = self._make_id("call")
        self._call_ids.add(call_id)
        return call_id

    def _mend(self, opened: _Open, text: str) -> str:
        """`text` without half a surrogate pair at its end; that waits for the other.

        Hosts cut an emoji's escape in two; JSON of ours must never carry half of one.
        """
        if not opened.pending and (text.isascii() or not _SURROGATE.search(text)):
            return text
        text, opened.pending = opened.pending + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, opened.pending = text[:-1], text[-1]
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _add_usage(self) -> None:
        call = self._call
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

    def _at(self, opened: _Open) -> dict[str, Any]:
        """The address of the part being written."""
        at = {"item_id": opened.item["id"], "output_index": opened.index}
        if opened.part is not None and opened.part["type"] == "summary_text":
            return {**at, "summary_index": opened.part_index, "part": opened.part}
        return {**at, "content_index": opened.part_index}

    def _emit(self, type: str, **fields: Any) -> None:
        number, self._sequence = self._sequence, self._sequence + 1
        self._out.append({"type": type, "sequence_number": number, **fields})

    def _take(self) -> list[Event]:
        events, self._out = self._out, []
        return events


def _output_text() -> dict[str, Any]:
    return {"type": "output_text", "text": "", "annotations": [], "logprobs": []}


def _text_field(part: dict[str, Any]) -> str:
    return "refusal" if part["type"] == "refusal" else "text"


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
    return arguments
