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
        proof = self.provider_data
        return _with_proof(self.payload, proof) if proof else self.payload


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


def items_of(turn: Turn) -> Items:
    """Load a turn's items in at most two queries. A summary replaces the items that
    it covers."""
    if cached := item_cache.get(turn):
        is_next = turn.parent_id == cached.turn_id
        ancestry = {cached.turn_id: 0, turn.pk: 1} if is_next else {turn.pk: 1}
        both = [turn.conversation_id, next(iter(ancestry)), turn.pk]
        found = sql.rows(_LAST_ITEMS, both)
        compactions = _compactions(found)
        if not compactions or find_active(compactions, ancestry) is None:
            return _read_items(turn, found, ancestry, cached, None)
    rows = sql.rows(_WITH_PARENTS, [turn.conversation_id])
    ancestry = _line_of(turn, {row[8]: row[9] for row in rows})
    found = [row[:8] for row in rows if row[0] in ancestry]
    compactions = _compactions(rows)
    compaction = find_active(compactions, ancestry) if compactions else None
    return _read_items(turn, found, ancestry, None, compaction)


def items_of_new(rows: Sequence[Item]) -> Items:
    """The items of the only turn of a conversation, which was opened with these."""
    inputs = [
        Row(row.turn_id, row.position, row.origin, row.epoch, row.sequence, row.payload)
        for row in rows
    ]
    # Whether they name files is found by looking through these few.
    return Items(inputs=inputs, outputs=(), before=(), may_have_files=True)


def items_as_of(turn: Turn, outputs: int) -> Items:
    """The items as a run of the turn had them after its first `outputs` output items:
    without what came later, and without its summaries."""
    ancestry = _find_ancestry(turn)
    rows = sql.rows(_ITEMS, [turn.conversation_id])
    own = [row for row in rows if row[0] == turn.pk and row[2] == Item.Origin.OUTPUT]
    own.sort(key=lambda row: row[1])
    later = {row[1] for row in own[outputs:]}
    found = [
        row
        for row in rows
        if row[0] in ancestry and not (row[0] == turn.pk and row[1] in later)
    ]
    compaction = find_active(_compactions(found), ancestry)
    return _read_items(turn, found, ancestry, None, compaction, is_past=True)


def output_rows(turn: Turn) -> Sequence[Row]:
    """The turn's output items, in order."""
    rows = sql.rows(f"{_ITEMS} AND t.id = %s", [turn.conversation_id, turn.pk])
    found = sorted(row for row in rows if row[2] == Item.Origin.OUTPUT)
    payloads = _read(",".join([row[5] for row in found]), found)
    return [
        Row._make((*row[:5], payload, json.loads(row[6]) if row[6] else None))
        for row, payload in zip(found, payloads, strict=True)
    ]


def load_log(turn: Turn, order: Mapping[str, int] | None = None) -> Log:
    """All items of the turn and of the turns it follows, covered ones included. `order`
    has these turns, if they are known."""
    rows = sql.rows(_ITEMS, [turn.conversation_id])
    return _log_of(turn, rows, order or _find_ancestry(turn))


def load_last_items(turn: Turn) -> Log:
    """The log without the items of the turns that it follows."""
    values = [turn.conversation_id, turn.pk, Item.Origin.OUTPUT]
    return _log_of(turn, sql.rows(_OWN_ITEMS, values), _find_ancestry(turn))


def _log_of(
    turn: Turn, rows: Sequence[tuple[Any, ...]], ancestry: Mapping[str, int]
) -> Log:
    found = [row for row in rows if row[0] in ancestry]
    found.sort(key=lambda row: (ancestry[row[0]], row[1]))
    payloads = _read(",".join([row[5] for row in found]), found)
    entries = _entries(found, payloads)
    return Log(entries, ancestry, _compactions(rows))


def _compactions(rows: Sequence[tuple[Any, ...]]) -> list[ItemPayload]:
    """The compaction items among the rows, in whatever turn."""
    found = [
        json.loads(row[5])
        for row in rows
        if row[7] == "compaction" and row[2] == Item.Origin.OUTPUT
    ]
    return [item for item in found if is_compaction(item)]


def _entries(
    rows: Sequence[tuple[Any, ...]], items: Sequence[ItemPayload]
) -> list[LogEntry]:
    """The items with their places, without compaction items."""
    return [
        LogEntry(row[0], row[1], row[2] == Item.Origin.INPUT, item)
        for row, item in zip(rows, items, strict=False)
        if not is_compaction(item)
    ]


def _read_items(
    turn: Turn,
    found: list[tuple[Any, ...]],
    ancestry: Mapping[str, int],
    cached: CachedItems | None,
    compaction: ItemPayload | None,
    *,
    is_past: bool = False,
) -> Items:
    found.sort(key=lambda row: (ancestry[row[0]], row[1]))
    text = ",".join([row[5] for row in found])
    payloads = _read(text, found)
    own = next((n for n, row in enumerate(found) if row[0] == turn.pk), len(found))
    rows = [
        Row._make((*row[:5], payload, json.loads(row[6]) if row[6] else None))
        for row, payload in zip(found[own:], payloads[own:], strict=True)
    ]
    before = [
        _with_proof(payload, json.loads(row[6])) if row[6] else payload
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
        size = sum(len(row[5]) + len(row[6] or "") for row in found[:own])
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


def _read(text: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    try:
        read: list[Any] = orjson.loads(f"[{text}]")
    except orjson.JSONDecodeError:  # an unpaired surrogate; Python's json accepts it
        return [json.loads(row[5]) for row in rows]
    return read


def _with_proof(payload: ItemPayload, proof: Any) -> ItemPayload:
    return {**payload, "provider_data": proof} if proof else payload
