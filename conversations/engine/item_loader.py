"""Loads the items of a conversation for its next turn, with a cache.

A conversation may have thousands of items, so they are read without model instances,
and their JSON is parsed in one piece. What could only be found by looking through all
items is searched in their JSON text.

The items before a turn are cached for the turn that follows it. They do not change when
a turn is added, because earlier turns are over. Every other change increments
`Conversation.rewritten`, in whatever process, and the items are read again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

import orjson

from conversations.engine.database import sql
from conversations.models import Item, Turn
from conversations.turns.history import HistoryPrefix
from llm.wire.items import Item as ItemPayload

#: Characters of JSON in the cache. Each takes three to five bytes, as items and as the
#: request to the last provider.
CACHE_SIZE = 3_000_000
CACHE_FROM = 20  # items; reading fewer is cheap

_PARENTS = "SELECT id, parent_id FROM conversations_turn WHERE conversation_id = %s"
_ITEMS = """
SELECT i.turn_id, i.position, i.origin, i.epoch, i.sequence, i.payload, i.provider_data
FROM conversations_item i JOIN conversations_turn t ON t.id = i.turn_id
WHERE t.conversation_id = %s
"""
_LAST_ITEMS = f"{_ITEMS} AND t.id IN (%s, %s)"


class Row(NamedTuple):
    turn_id: str
    position: int
    origin: str
    epoch: int
    sequence: int
    payload: ItemPayload
    provider_data: Any = None

    @property
    def item(self) -> ItemPayload:
        """The payload with its proof, which only its issuer receives."""
        return _with_proof(self.payload, self.provider_data)


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a turn and of the turns before it, each in order."""

    inputs: Sequence[Row]  # of the turn
    outputs: Sequence[Row]
    before: Sequence[ItemPayload]  # of the turns it follows from, with proofs
    may_have_files: bool  # False if none of them can refer to an attachment
    #: The mended beginning of `before`.
    story: HistoryPrefix | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CachedItems:
    """The items before a turn, with the values that show whether they are current."""

    turn_id: str
    parent_id: str | None
    rewritten: int
    before: Sequence[ItemPayload]
    story: HistoryPrefix
    may_have_files: bool
    size: int  # characters of JSON


class ItemCache:
    """Items of the conversations that were loaded last."""

    def __init__(self, size: int = CACHE_SIZE) -> None:
        self._left = size
        self._cached: OrderedDict[str, CachedItems] = OrderedDict()
        self._lock = Lock()

    def get(self, turn: Turn) -> CachedItems | None:
        """The cached items of the turn's conversation, if the turn follows from
        them."""
        cached = self._cached.get(turn.conversation_id)
        if cached is None or cached.rewritten != turn.conversation.rewritten:
            return None
        goes_on = turn.parent_id in (cached.turn_id, cached.parent_id)
        return cached if goes_on else None

    def store(self, conversation_id: str, new: CachedItems) -> None:
        with self._lock:
            if old := self._cached.pop(conversation_id, None):
                self._left += old.size
            self._cached[conversation_id] = new
            self._left -= new.size
            while self._left < 0:
                _, oldest = self._cached.popitem(last=False)
                self._left += oldest.size


item_cache = ItemCache()


def items_of(turn: Turn) -> Items:
    """Load a turn's items in at most two queries."""
    cached = item_cache.get(turn)
    if cached is None:
        ancestry = _find_ancestry(turn)
        found = [
            r for r in sql.rows(_ITEMS, [turn.conversation_id]) if r[0] in ancestry
        ]
    else:
        is_next = turn.parent_id == cached.turn_id
        ancestry = {cached.turn_id: 0, turn.pk: 1} if is_next else {turn.pk: 1}
        both = [turn.conversation_id, next(iter(ancestry)), turn.pk]
        found = sql.rows(_LAST_ITEMS, both)
    return _read_items(turn, found, ancestry, cached)


def _read_items(
    turn: Turn,
    found: list[tuple[Any, ...]],
    ancestry: Mapping[str, int],
    cached: CachedItems | None,
) -> Items:
    found.sort(key=lambda row: (ancestry[row[0]], row[1]))
    text = ",".join([row[5] for row in found])
    payloads = _read(text, found)
    own = next((n for n, row in enumerate(found) if row[0] == turn.pk), len(found))
    rows = [
        Row._make((*row[:5], payload, _proof(row)))
        for row, payload in zip(found[own:], payloads[own:], strict=True)
    ]
    before = [
        _with_proof(payload, _proof(row)) if row[6] else payload
        for row, payload in zip(found[:own], payloads, strict=False)
    ]
    may_have_files = '"file_id"' in text
    if cached is not None:
        before = [*cached.before, *before]
        may_have_files = may_have_files or cached.may_have_files
    story = cached.story if cached else None
    # A cancelled turn may be loaded before the turns ahead of it are over.
    if len(before) >= CACHE_FROM and not turn.cancel_requested:
        size = sum(len(row[5]) + len(row[6] or "") for row in found[:own])
        size += cached.size if cached else 0
        story = (story or HistoryPrefix()).extend(before)
        new = CachedItems(
            turn.pk,
            turn.parent_id,
            turn.conversation.rewritten,
            before,
            story,
            may_have_files,
            size,
        )
        item_cache.store(turn.conversation_id, new)
    return Items(
        inputs=[row for row in rows if row.origin == Item.Origin.INPUT],
        outputs=[row for row in rows if row.origin != Item.Origin.INPUT],
        before=before,
        may_have_files=may_have_files,
        story=story,
    )


def _find_ancestry(turn: Turn) -> dict[str, int]:
    """The turn and its ancestors, numbered from the first."""
    parents: dict[str, str | None] = dict(sql.rows(_PARENTS, [turn.conversation_id]))
    ancestry, ancestor = [turn.pk], turn.parent_id
    while ancestor and ancestor in parents:
        ancestry.append(ancestor)
        ancestor = parents.pop(ancestor)
    return {pk: number for number, pk in enumerate(reversed(ancestry))}


def _read(text: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    try:
        read: list[Any] = orjson.loads(f"[{text}]")
    except orjson.JSONDecodeError:  # an unpaired surrogate; Python's json accepts it
        return [json.loads(row[5]) for row in rows]
    return read


def _proof(row: tuple[Any, ...]) -> Any:
    return json.loads(row[6]) if row[6] else None


def _with_proof(payload: ItemPayload, proof: Any) -> ItemPayload:
    return {**payload, "provider_data": proof} if proof else payload
