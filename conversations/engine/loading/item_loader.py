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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from conversations.engine.database import sql
from conversations.engine.loading.item_cache import CachedItems, ItemCache
from conversations.models import Item, Turn
from conversations.turns.compaction import (
    Log,
    LogEntry,
    apply_compaction,
    find_active,
)
from conversations.turns.history import HistoryPrefix
from llm.wire.items import THROUGH, is_compaction
from llm.wire.items import Item as ItemPayload

CACHE_FROM = 20  # items; reading fewer is cheap

_PARENTS = "SELECT id, parent_id FROM conversations_turn WHERE conversation_id = %s"
_ITEMS = """
SELECT i.turn_id, i.position, i.origin, i.epoch, i.sequence, i.payload,
    i.provider_data, i.type
FROM conversations_item i JOIN conversations_turn t ON t.id = i.turn_id
WHERE t.conversation_id = %s
"""
#: All items with the parents of their turns; a turn without items has one row.
_WITH_PARENTS = """
SELECT i.turn_id, i.position, i.origin, i.epoch, i.sequence, i.payload,
    i.provider_data, i.type, t.id, t.parent_id
FROM conversations_turn t LEFT JOIN conversations_item i ON i.turn_id = t.id
WHERE t.conversation_id = %s
"""
_LAST_ITEMS = f"{_ITEMS} AND t.id IN (%s, %s)"
_OWN_ITEMS = f"{_ITEMS} AND (t.id = %s OR (i.type = 'compaction' AND i.origin = %s))"


class StoredItem(NamedTuple):
    """A row of `_ITEMS`, with unparsed JSON."""

    turn_id: str
    position: int
    origin: str
    epoch: int
    sequence: int
    payload: str
    proof: str | None
    type: str


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
        if not self.provider_data:
            return self.payload
        return {**self.payload, "provider_data": self.provider_data}


@dataclass(frozen=True, slots=True)
class Items:
    """The items of a turn and of the turns before it, each in order."""

    inputs: Sequence[Row]  # of the turn
    outputs: Sequence[Row]
    before: Sequence[ItemPayload]  # of the turns it follows from, with proofs
    may_have_files: bool  # False if none of them can refer to an attachment
    covered: int = 0  # of the outputs, by a summary that `before` begins with
    #: The repaired prefix of `before`.
    history_prefix: HistoryPrefix | None = field(default=None, compare=False)


item_cache = ItemCache()


def load_items(turn: Turn) -> Items:
    """Load a turn's items in at most two queries. A summary replaces the items that
    it covers."""
    cached = item_cache.get(turn.conversation_id)
    if cached is not None and cached.precede(turn):
        is_next = turn.parent_id == cached.turn_id
        ancestry = {cached.turn_id: 0, turn.pk: 1} if is_next else {turn.pk: 1}
        both = [turn.conversation_id, next(iter(ancestry)), turn.pk]
        found = [StoredItem._make(row) for row in sql.rows(_LAST_ITEMS, both)]
        compactions = _compactions(found)
        if not compactions or find_active(compactions, ancestry) is None:
            return _read_items(turn, found, ancestry, cached, None)
    rows = sql.rows(_WITH_PARENTS, [turn.conversation_id])
    ancestry = _line_of(turn, {turn_id: parent for *_, turn_id, parent in rows})
    stored = [StoredItem._make(row[:8]) for row in rows]
    found = [row for row in stored if row.turn_id in ancestry]
    compactions = _compactions(stored)
    compaction = find_active(compactions, ancestry) if compactions else None
    return _read_items(turn, found, ancestry, None, compaction)


def load_items_of_first_turn(rows: Sequence[Item]) -> Items:
    """The items of the only turn of a conversation, which was opened with these."""
    inputs = [
        Row(row.turn_id, row.position, row.origin, row.epoch, row.sequence, row.payload)
        for row in rows
    ]
    # Whether they name files is found by looking through these few.
    return Items(inputs=inputs, outputs=(), before=(), may_have_files=True)


def load_items_at(turn: Turn, outputs: int) -> Items:
    """The items as a run of the turn had them after its first `outputs` output items:
    without what came later, and without its summaries."""
    ancestry = _find_ancestry(turn)
    rows = map(StoredItem._make, sql.rows(_ITEMS, [turn.conversation_id]))
    line = [row for row in rows if row.turn_id in ancestry]
    own = [row for row in line if row.turn_id == turn.pk]
    positions = sorted(r.position for r in own if r.origin == Item.Origin.OUTPUT)
    later = set(positions[outputs:])
    found = [r for r in line if r.turn_id != turn.pk or r.position not in later]
    compaction = find_active(_compactions(found), ancestry)
    return _read_items(turn, found, ancestry, None, compaction, is_past=True)


def output_rows(turn: Turn) -> Sequence[Row]:
    """The turn's output items, in order."""
    rows = sql.rows(f"{_ITEMS} AND t.id = %s", [turn.conversation_id, turn.pk])
    stored = map(StoredItem._make, sorted(rows))
    found = [row for row in stored if row.origin == Item.Origin.OUTPUT]
    payloads = _read(",".join([row.payload for row in found]), found)
    return [
        Row._make((*row[:5], payload, json.loads(row.proof) if row.proof else None))
        for row, payload in zip(found, payloads, strict=True)
    ]


def load_log(turn: Turn, order: Mapping[str, int] | None = None) -> Log:
    """All items of the turn and of the turns it follows, covered ones included. `order`
    has these turns, if they are known."""
    rows = map(StoredItem._make, sql.rows(_ITEMS, [turn.conversation_id]))
    return _log_of(turn, list(rows), order or _find_ancestry(turn))


def load_last_items(turn: Turn) -> Log:
    """The log without the items of the turns that it follows."""
    values = [turn.conversation_id, turn.pk, Item.Origin.OUTPUT]
    rows = map(StoredItem._make, sql.rows(_OWN_ITEMS, values))
    return _log_of(turn, list(rows), _find_ancestry(turn))


def _log_of(turn: Turn, rows: Sequence[StoredItem], ancestry: Mapping[str, int]) -> Log:
    found = [row for row in rows if row.turn_id in ancestry]
    found.sort(key=lambda row: (ancestry[row.turn_id], row.position))
    payloads = _read(",".join([row.payload for row in found]), found)
    entries = _entries(found, payloads)
    return Log(entries, ancestry, _compactions(rows))


def _compactions(rows: Sequence[StoredItem]) -> list[ItemPayload]:
    """The compaction items among the rows, in whatever turn."""
    found = [
        json.loads(row.payload)
        for row in rows
        if row.type == "compaction" and row.origin == Item.Origin.OUTPUT
    ]
    return [item for item in found if is_compaction(item)]


def _entries(
    rows: Sequence[StoredItem], items: Sequence[ItemPayload]
) -> list[LogEntry]:
    """The items with their places, without compaction items."""
    return [
        LogEntry(row.turn_id, row.position, row.origin == Item.Origin.INPUT, item)
        for row, item in zip(rows, items, strict=False)
        if not is_compaction(item)
    ]


def _read_items(
    turn: Turn,
    found: list[StoredItem],
    ancestry: Mapping[str, int],
    cached: CachedItems | None,
    compaction: ItemPayload | None,
    *,
    is_past: bool = False,
) -> Items:
    found.sort(key=lambda row: (ancestry[row.turn_id], row.position))
    text = ",".join([row.payload for row in found])
    payloads = _read(text, found)
    turn_ids = [row.turn_id for row in found]
    own = turn_ids.index(turn.pk) if turn.pk in turn_ids else len(found)
    rows = [
        Row._make((*row[:5], payload, json.loads(row.proof) if row.proof else None))
        for row, payload in zip(found[own:], payloads[own:], strict=True)
    ]
    before = [
        _with_proof(payload, json.loads(row.proof)) if row.proof else payload
        for row, payload in zip(found[:own], payloads, strict=False)
    ]
    if compaction is None:
        before = [item for item in before if not is_compaction(item)]
    else:
        entries = _entries(found[:own], before)
        before = apply_compaction(entries, compaction, ancestry)
    may_have_files = '"file_id"' in text
    if cached is not None:
        before = [*cached.before, *before]
        may_have_files = may_have_files or cached.may_have_files
    history_prefix = cached.history_prefix if cached else None
    # A cancelled turn may be loaded before the turns ahead of it are over. A summary of
    # this turn's own items is wrong for other attempts at the same message.
    is_shared = compaction is None or compaction[THROUGH]["turn"] != turn.pk
    is_shared = is_shared and not is_past
    if len(before) >= CACHE_FROM and not turn.cancel_requested and is_shared:
        size = sum(len(row.payload) + len(row.proof or "") for row in found[:own])
        size += cached.size if cached else 0
        history_prefix = (history_prefix or HistoryPrefix()).extend(before)
        new = CachedItems(
            turn.pk,
            turn.parent_id,
            turn.conversation.rewritten,
            before,
            history_prefix,
            may_have_files,
            size,
        )
        item_cache.store(turn.conversation_id, new)
    outputs = [row for row in rows if row.origin != Item.Origin.INPUT]
    return Items(
        inputs=[row for row in rows if row.origin == Item.Origin.INPUT],
        outputs=outputs,
        before=before,
        may_have_files=may_have_files,
        covered=_count_covered(outputs, compaction) if compaction else 0,
        history_prefix=history_prefix,
    )


def _count_covered(outputs: Sequence[Row], compaction: ItemPayload) -> int:
    through = compaction[THROUGH]
    return sum(
        row.turn_id == through["turn"] and row.position <= through["position"]
        for row in outputs
    )


def _find_ancestry(turn: Turn) -> dict[str, int]:
    """The turn and its ancestors, numbered from the first."""
    if turn.parent_id is None:
        return {turn.pk: 0}
    return _line_of(turn, dict(sql.rows(_PARENTS, [turn.conversation_id])))


def _line_of(turn: Turn, parents: dict[str, str | None]) -> dict[str, int]:
    """As `_find_ancestry`, by the parents of the conversation's turns."""
    ancestry = [turn.pk]
    ancestor: str | None = turn.parent_id
    while ancestor and ancestor in parents:
        ancestry.append(ancestor)
        ancestor = parents.pop(ancestor)
    return {pk: number for number, pk in enumerate(reversed(ancestry))}


def _read(text: str, rows: Sequence[StoredItem]) -> list[Any]:
    try:
        read: list[Any] = orjson.loads(f"[{text}]")
    except orjson.JSONDecodeError:  # an unpaired surrogate; Python's json accepts it
        return [json.loads(row.payload) for row in rows]
    return read


def _with_proof(payload: ItemPayload, proof: Any) -> ItemPayload:
    return {**payload, "provider_data": proof} if proof else payload
