"""The output items of one answer as far as they have arrived, and how to find them.

Items are found by `item_id`, then by `call_id`, then by `output_index`: GitHub Copilot
changes ids with every event, OGX gives parallel calls one index, and some hosts give
one id to all messages. An id or index of an item of another type, or of another call,
is ignored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from llm.wire.deltas import MAX_ITEMS, too_many_items


@dataclass(slots=True)
class OutputItem:
    """An output item as far as it has arrived."""

    key: int
    index: Any = 0  # of the output, as the host counts
    id: str = ""
    type: str = ""  # empty until the item's own event arrives
    call_id: str = ""
    is_confirmed: bool = False  # its id has occurred in a second event
    raw: dict[str, Any] | None = None  # its final form
    phase: str | None = None
    is_announced: bool = False  # the call's name has been emitted
    #: Arguments that may belong to another call, and are not emitted yet.
    unsent_arguments: list[str] = field(default_factory=list)
    annotations: int = 0  # emitted so far
    is_split: bool = False  # a message or reasoning, by another item
    input: str | None = None  # of a custom call, once it is complete
    #: Text of the deltas, by kind and part.
    received: defaultdict[tuple[str, int], list[str]] = field(
        default_factory=lambda: defaultdict(list)
    )

    @property
    def done(self) -> bool:
        return self.raw is not None

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Whether `fields` may be this item.

        OpenAI changes the call_id of a tool_search_call when it is done.
        """
        if self.type != fields["type"]:
            return not self.type
        theirs = fields.get("call_id")
        is_call = self.type == "function_call" and theirs and self.call_id
        return not is_call or theirs == self.call_id

    def length_before(self, part: int) -> int:
        """Characters of the earlier parts of a message, which becomes one text."""
        if not part:
            return 0
        earlier = (
            pieces
            for (kind, n), pieces in self.received.items()
            if kind == "text"
            if n < part
        )
        return sum(len(piece) for pieces in earlier for piece in pieces)

    def missing(self, kind: str, whole: str, part: int | None = None) -> str:
        """The rest of `whole` after the deltas of this kind (and part)."""
        if part is None:
            keys = sorted(at for at in self.received if at[0] == kind)
        else:
            keys = [(kind, part)] if (kind, part) in self.received else []
        sent = "".join("".join(self.received[at]) for at in keys)
        return whole[len(sent) :] if whole.startswith(sent) else ""


@dataclass(slots=True, eq=False, repr=False)
class OutputItems:
    """All items of one answer, in the order in which they began."""

    all: list[OutputItem] = field(default_factory=list)
    by_id: dict[str, OutputItem] = field(default_factory=dict)  # the latest of each
    indexes_repeat: bool = False  # several open items have the same index
    #: The latest of each.
    _by_index: dict[int, OutputItem] = field(default_factory=dict)
    #: The first of each type; a later one with the same call id is a repetition.
    _by_call_id: dict[tuple[str, str], OutputItem] = field(default_factory=dict)

    def add(self, data: Mapping[str, Any]) -> OutputItem:
        """A new item, which the event `data` refers to. Raises BadResponse if there
        are too many."""
        if len(self.all) >= MAX_ITEMS:
            raise too_many_items()
        index = data.get("output_index", 0)
        item = OutputItem(len(self.all), index)
        self.all.append(item)
        self._by_index[index] = item
        if id := _name(data, "item_id"):
            self.by_id[id] = item
            item.id = id
        return item

    def begin(self, item: OutputItem, fields: dict[str, Any]) -> None:
        """Note what the item's own event says of it."""
        item.type = fields["type"]
        if id := _name(fields, "id"):
            self.by_id[id] = item
            item.id = id
        if call_id := _name(fields, "call_id"):
            item.call_id = call_id
            self._by_call_id.setdefault((item.type, call_id), item)
        item.phase = fields.get("phase") or item.phase

    def get_or_add(self, data: Mapping[str, Any]) -> OutputItem:
        """The item that an event without its own `item` refers to."""
        id = _name(data, "item_id")
        if id and (item := self.by_id.get(id)):
            item.is_confirmed = True
            return item
        item = self._by_index.get(data.get("output_index", 0))
        if item is None or (id and item.is_confirmed and item.type):
            return self.add(data)  # that item has another, stable id
        return item

    def find_of_type(self, data: Mapping[str, Any], type: str) -> OutputItem | None:
        """The item of this type that the `done` event of a part of it refers to, or a
        new one; None if the event's index is that of another item."""
        item = self.find_addressed(data) or self.add(data)
        return item if item.type in ("", type) else None

    def find_addressed(self, data: Mapping[str, Any]) -> OutputItem | None:
        """The item whose id or index an event of a part names."""
        item = self.by_id.get(_name(data, "item_id"))
        return item or self._by_index.get(data.get("output_index", 0))

    def find_by_id(self, fields: Mapping[str, Any]) -> OutputItem | None:
        """The item that `fields` describes, found by its id or its call id."""
        item = self.by_id.get(_name(fields, "id"))
        if item is not None and item.fits(fields):
            item.is_confirmed = True
            return item
        if call_id := _name(fields, "call_id"):
            item = self._by_call_id.get((str(fields["type"]), call_id))
            return item if item and item.call_id == call_id else None
        return None

    def find_by_index(
        self, data: Mapping[str, Any], fields: Mapping[str, Any]
    ) -> OutputItem | None:
        item = self._by_index.get(data.get("output_index", 0))
        if item is None or not item.fits(fields):
            return None
        if item.raw is not None:
            return item if _same(item.raw, fields) else None
        is_another = item.is_confirmed and item.type and fields.get("id")
        return None if is_another else item

    def find_announced(self, data: Mapping[str, Any]) -> OutputItem:
        """The item for an `added` event; deltas may have created it already."""
        item = self._by_index.get(data.get("output_index", 0))
        if item is None:
            return self.add(data)
        if not item.type and item.fits(data["item"]):
            return item
        self.indexes_repeat |= not item.done and item.type == "function_call"
        return self.add(data)

    def find_repeated(
        self,
        position: int,
        fields: dict[str, Any],
        streamed: list[OutputItem],
        repeated: Collection[int],
    ) -> OutputItem | None:
        """The streamed item that equals `fields`: the one at its position if the id is
        the same, else by its ids, else by its position.

        `repeated` are the keys of those that were found before.
        """
        id = _name(fields, "id")
        if id and position < len(streamed):
            item = streamed[position]
            if item.id == id and item.fits(fields) and item.key not in repeated:
                return item
        if (found := self.find_by_id(fields)) is not None and found.key not in repeated:
            return found
        if position < len(streamed):
            item = streamed[position]
            if item.fits(fields) and item.key not in repeated:
                return item
        return None


def _name(fields: Mapping[str, Any], kind: str) -> str:
    """An id; "" if it is missing or not a string."""
    value = fields.get(kind)
    return value if isinstance(value, str) else ""


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both are the same item except for the id."""
    return {**one, "id": ""} == {**other, "id": ""}
