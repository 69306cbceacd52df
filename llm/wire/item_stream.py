"""Items of a response under construction, emitted as canonical events.

An item is *open* from its first delta to its last. Message and reasoning items follow
one another, so opening one closes the previous one; tool calls may be open side by
side. `done` events are emitted in the order of `output_index`, so a closed item may
wait for an earlier one. An event is a new dict that nobody changes afterwards; text is
collected in a buffer.

Source: https://www.openresponses.org/specification#streaming
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from llm.wire.deltas import Key, ToolCallDelta
from llm.wire.items import Event, Item
from llm.wire.sanitize import sanitize_json, sanitize_text

_SURROGATE = re.compile("[\ud800-\udfff]")
SECONDS = "parley:seconds"  # of an item of reasoning: from its beginning to its end
BEGAN = "parley:began"  # of an open item: when it began, by the stream's clock
#: Shared placeholder for dicts that most responses fill only at their end, while
#: thousands are open. Code that adds to one creates a real dict first.
EMPTY_DICT = cast(dict[Any, Any], MappingProxyType({}))


class TextBuffer:
    """A text that grows piece by piece, stored as UTF-8: a Python string takes 50 bytes
    beyond its characters, and hosts send a few characters at a time."""

    __slots__ = ("_data", "length")

    def __init__(self) -> None:
        self.length = 0  # characters
        self._data = bytearray()

    def append(self, piece: str) -> None:
        self._data += piece.encode(errors="surrogatepass")
        self.length += len(piece)

    def join(self) -> str:
        """The complete text."""
        return self._data.decode(errors="surrogatepass")


class OpenItem:
    """An item that is not done: its skeleton and its text so far."""

    __slots__ = (
        "annotations",
        "arguments",
        "closed",
        "index",
        "item",
        "own_parts",
        "part",
        "part_index",
        "pending",
        "since",
        "source_part",
        "text",
    )

    def __init__(self, index: int, item: Item) -> None:
        self.index = index
        self.item = item
        #: Lists of its parts that grow in place; copies would take quadratic time.
        self.own_parts: Mapping[str, list[dict[str, Any]]] = EMPTY_DICT
        self.part: dict[str, Any] | None = None  # the content part being written
        self.annotations: list[dict[str, Any]] | None = None  # new ones of the part
        self.part_index = -1
        self.source_part = 0  # its number in the provider's numbering
        self.text = TextBuffer()  # of the current part
        self.arguments = TextBuffer()
        self.pending = ""  # first half of a surrogate pair
        self.closed = False
        self.since: float | None = None  # when reasoning began, by the stream's clock

    def parts(self, field: str) -> list[dict[str, Any]]:
        """The item's parts in `field`, as a list that no event has."""
        if field not in self.own_parts:
            self.own_parts = {**self.own_parts, field: [*self.item.get(field, ())]}
            self.item = {**self.item, field: self.own_parts[field]}
        return self.own_parts[field]

    def update(self, fields: Item) -> None:
        """Replace fields of the item."""
        self.item = {**self.item, **fields}
        if self.own_parts:
            self.own_parts = {
                f: parts for f, parts in self.own_parts.items() if f not in fields
            }

    def snapshot(self) -> Item:
        """The item as it is now, including text of an open part."""
        item = {**self.item, **{f: [*parts] for f, parts in self.own_parts.items()}}
        if item["type"] == "function_call":
            item["arguments"] = self.arguments.join()
        elif self.part is not None:
            field = "summary" if self.part["type"] == "summary_text" else "content"
            part = {**self.part, _text_field(self.part): self.text.join()}
            if self.annotations is not None:
                part["annotations"] = [*self.annotations]  # this one will grow
            item[field] = [*item[field][:-1], part]
        return item


class ItemStream:
    """Open items and finished `output` of a response.

    `proofs` are the providers' raw blocks, by item id. Events collect until `_take`.
    """

    #: Characters of a call's id; a longer one is replaced by a new id.
    longest_call_id = 64

    __slots__ = (
        "_call_ids",
        "_clock",
        "_closed",
        "_count",
        "_current",
        "_make_id",
        "_open",
        "_out",
        "_sequence",
        "_unnamed",
        "_waiting",
        "done_at",
        "output",
        "proofs",
    )

    def __init__(
        self, make_id: Callable[[str], str], clock: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock  # seconds; None: reasoning is not timed
        self.output: list[Item] = []
        self.done_at: list[int] = []  # sequence number of each item's `done`
        self.proofs: dict[str, Any] = {}
        self._make_id = make_id
        self._out: list[Event] = []
        self._sequence = 0
        self._count = 0  # items added so far
        self._open: dict[Key, OpenItem] = {}
        self._closed: dict[Key, str] = EMPTY_DICT  # ids of this call's closed items
        self._current: Key | None = None  # the open message or reasoning item
        #: Calls whose name has not arrived yet.
        self._unnamed: dict[Key, list[ToolCallDelta]] = EMPTY_DICT
        self._waiting: dict[int, Item] = EMPTY_DICT  # closed, behind one still open
        self._call_ids: dict[str, None] = EMPTY_DICT

    # Opening

    def _open_message(self, key: Key, phase: str | None) -> OpenItem:
        self._close_current()
        message: Item = {"type": "message", "role": "assistant", "content": []}
        if phase:
            message["phase"] = sanitize_json(phase)
        self._current = key
        return self._add(key, "msg", message)

    def _open_reasoning(self, key: Key) -> OpenItem:
        self._close_current()
        self._current = key
        return self._add(key, "rs", {"type": "reasoning", "summary": [], "content": []})

    def _open_call(self, key: Key, calls: list[ToolCallDelta], name: str) -> None:
        if key in self._unnamed:
            del self._unnamed[key]
        self._close_current()
        call_id = next((call.call_id for call in calls if call.call_id), "")
        call = {
            "type": "function_call",
            "call_id": self._unique(call_id),
            "name": name,
            "arguments": "",
        }
        if namespace := next((each.namespace for each in calls if each.namespace), ""):
            call["namespace"] = namespace
        opened = self._add(key, "fc", call)
        text = self._sanitize(opened, "".join(call.arguments for call in calls))
        if text:
            self._arguments(opened, text)

    def _add(self, key: Key, prefix: str, fields: Item) -> OpenItem:
        item = {
            "type": fields["type"],
            "id": self._make_id(prefix),
            "status": "in_progress",
            **fields,
        }
        opened = self._open[key] = OpenItem(self._count, item)
        self._count += 1
        self._begin_time(opened)
        self._emit(
            "response.output_item.added", output_index=opened.index, item=dict(item)
        )
        return opened

    def _begin_time(self, opened: OpenItem) -> None:
        """A reopened item of reasoning keeps the time at which it was begun."""
        if self._clock is not None and opened.item["type"] == "reasoning":
            opened.since = opened.item.get(BEGAN) or round(self._clock(), 1)
            opened.item[BEGAN] = opened.since

    def _open_part(self, opened: OpenItem, part: dict[str, Any]) -> None:
        self._close_part(opened)
        field = "summary" if part["type"] == "summary_text" else "content"
        # Some hosts send text for an item that they began as another type.
        opened.parts(field).append(part)
        opened.part, opened.annotations = part, None
        opened.part_index = len(opened.item[field]) - 1
        if field == "summary":
            self._emit("response.reasoning_summary_part.added", **self._at(opened))
        else:
            self._emit("response.content_part.added", **self._at(opened), part=part)

    def _arguments(self, opened: OpenItem, text: str) -> None:
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

    def _close_part(self, opened: OpenItem) -> None:
        if opened.part is None:
            return
        if opened.pending:  # the second half never arrived
            opened.text.append("\ufffd")
            opened.pending = ""
        text = opened.text.join()
        part = {**opened.part, _text_field(opened.part): text}
        field = "summary" if part["type"] == "summary_text" else "content"
        opened.parts(field)[-1:] = [part]
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
        opened.part, opened.text = None, TextBuffer()

    def _close(
        self, key: Key, *, complete: bool = True, status: str | None = None
    ) -> None:
        opened = self._open.pop(key)
        self._closed = self._closed or {}
        self._closed[key] = opened.item["id"]
        if opened.item["type"] == "function_call":
            complete = self._close_arguments(opened, complete)
        self._close_part(opened)
        opened.item = {
            **opened.item,
            "status": status or ("completed" if complete else "incomplete"),
        }
        if self._clock is not None and opened.since is not None:
            # Clocks of several machines differ, and clocks are set back.
            opened.item[SECONDS] = round(max(0.0, self._clock() - opened.since), 1)
            opened.item.pop(BEGAN, None)
        self._emit_done(opened.index, opened.item)

    def _close_arguments(self, opened: OpenItem, complete: bool) -> bool:
        """Returns False if the call must never be run."""
        text = opened.arguments.join()
        if complete and text.strip() in ("", "null"):
            if not text:
                self._arguments(opened, "{}")  # the deltas must add up to them
            text = "{}"
        opened.item = {**opened.item, "arguments": text}
        self._emit(
            "response.function_call_arguments.done",
            item_id=opened.item["id"],
            output_index=opened.index,
            arguments=text,
        )
        return complete and bool(opened.item["name"])

    def _add_whole(self, item: Item) -> None:
        """Add a finished item: emit its events with all its content."""
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
                self._emit_part(opened, part)
                self._close_part(opened)
        self._emit_done(opened.index, item)

    def _begin(self, item: Item) -> OpenItem:
        """Emit the `added` event of `item`, empty; its content follows."""
        opened = OpenItem(self._count, {**item, "status": "in_progress"})
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

    def _emit_part(self, opened: OpenItem, part: dict[str, Any]) -> None:
        """Open `part` and emit all its text; the part stays open."""
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

    def _emit_done(self, index: int, item: Item) -> None:
        """Emit `done` for closed items as soon as every earlier item is done."""
        self._waiting = self._waiting or {}
        self._waiting[index] = item
        while (index := len(self.output)) in self._waiting:
            item = self._waiting.pop(index)
            self.done_at.append(self._sequence)
            self._emit(
                "response.output_item.done", output_index=len(self.output), item=item
            )
            self.output.append(item)
        self._waiting = self._waiting or EMPTY_DICT

    # Plumbing

    def _unique(self, call_id: str) -> str:
        """The provider's id if it is valid and new in this response, else a new one."""
        is_too_long = len(call_id) > self.longest_call_id
        if not call_id or is_too_long or call_id in self._call_ids:
            call_id = self._make_id("call")
        self._note_call(call_id)
        return call_id

    def _note_call(self, call_id: str) -> None:
        self._call_ids = self._call_ids or {}
        self._call_ids[call_id] = None

    def _sanitize(self, opened: OpenItem, text: str) -> str:
        """`text` without half a surrogate pair at its end, which waits for the other
        half.

        Hosts cut an emoji's escape in two, and half of one cannot be written as JSON.
        NUL is replaced because PostgreSQL refuses any row that contains it.
        """
        if "\0" in text:
            text = text.replace("\0", "\ufffd")
        if not opened.pending and (text.isascii() or not _SURROGATE.search(text)):
            return text
        text, opened.pending = opened.pending + text, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, opened.pending = text[:-1], text[-1]
        return sanitize_text(text)

    def _at(self, opened: OpenItem) -> dict[str, Any]:
        """The ids and indexes that address the current part."""
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


def _text_field(part: dict[str, Any]) -> str:
    return "refusal" if part["type"] == "refusal" else "text"
