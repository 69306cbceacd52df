"""The items of a conversation as its next turn needs them, read at the least cost.

A conversation may have thousands of them, and they are read for every turn: so without
a model instance for each, and their JSON in one piece. What could only be found by
looking through them all is looked for in their text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from conversations.engine import sql
from conversations.models import Item, Turn
from llm.wire.items import Item as ItemPayload

_PARENTS = "SELECT id, parent_id FROM conversations_turn WHERE conversation_id = %s"
_ITEMS = """
SELECT i.turn_id, i.position, i.origin, i.epoch, i.sequence, i.payload, i.provider_data
FROM conversations_item i JOIN conversations_turn t ON t.id = i.turn_id
WHERE t.conversation_id = %s
"""


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
        """With the proof that only its issuer gets to see."""
        return _vouched(self.payload, self.provider_data)


@dataclass(frozen=True, slots=True)
class Items:
    """Each in their order."""

    inputs: Sequence[Row]  # of the turn
    outputs: Sequence[Row]
    before: Sequence[ItemPayload]  # of the turns that it follows from, with proofs
    may_have_files: bool  # False where none of them can name a file of ours


def items_of(turn: Turn) -> Items:
    """In two queries."""
    line = _line(turn)
    found = [r for r in sql.rows(_ITEMS, [turn.conversation_id]) if r[0] in line]
    found.sort(key=lambda row: (line[row[0]], row[1]))
    text = ",".join([row[5] for row in found])
    payloads = _read(text, found)
    own = next((n for n, row in enumerate(found) if row[0] == turn.pk), len(found))
    rows = [
        Row._make((*row[:5], payload, _proof(row)))
        for row, payload in zip(found[own:], payloads[own:], strict=True)
    ]
    return Items(
        inputs=[row for row in rows if row.origin == Item.Origin.INPUT],
        outputs=[row for row in rows if row.origin != Item.Origin.INPUT],
        before=[
            _vouched(payload, _proof(row)) if row[6] else payload
            for row, payload in zip(found[:own], payloads, strict=False)
        ],
        may_have_files='"file_id"' in text,
    )


def _line(turn: Turn) -> dict[str, int]:
    """The turn and those that it follows from, numbered from the first."""
    parents: dict[str, str | None] = dict(sql.rows(_PARENTS, [turn.conversation_id]))
    line, ancestor = [turn.pk], turn.parent_id
    while ancestor and ancestor in parents:
        line.append(ancestor)
        ancestor = parents.pop(ancestor)
    return {pk: number for number, pk in enumerate(reversed(line))}


def _read(text: str, rows: Sequence[tuple[Any, ...]]) -> list[Any]:
    try:
        read: list[Any] = orjson.loads(f"[{text}]")
    except orjson.JSONDecodeError:  # half a character, which Python's own JSON takes
        return [json.loads(row[5]) for row in rows]
    return read


def _proof(row: tuple[Any, ...]) -> Any:
    return json.loads(row[6]) if row[6] else None


def _vouched(payload: ItemPayload, proof: Any) -> ItemPayload:
    return {**payload, "provider_data": proof} if proof else payload
