"""The items of a conversation as its next turn needs them, read at the least cost.

A conversation may have thousands of them, and they are read for every turn: so without
a model instance for each, and their JSON in one piece.
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
        if self.provider_data:
            return {**self.payload, "provider_data": self.provider_data}
        return self.payload


@dataclass(frozen=True, slots=True)
class Items:
    """Each in their order."""

    inputs: Sequence[Row]  # of the turn
    outputs: Sequence[Row]
    before: Sequence[Row]  # of the turns that it follows from


def items_of(turn: Turn) -> Items:
    """In two queries."""
    line = _line(turn)
    inputs, outputs, before = [], [], []
    for row in _rows(turn.conversation_id, line):
        if row.turn_id != turn.pk:
            before.append(row)
        elif row.origin == Item.Origin.INPUT:
            inputs.append(row)
        else:
            outputs.append(row)
    return Items(inputs, outputs, before)


def _line(turn: Turn) -> dict[str, int]:
    """The turn and those that it follows from, numbered from the first."""
    parents: dict[str, str | None] = dict(sql.rows(_PARENTS, [turn.conversation_id]))
    line, ancestor = [turn.pk], turn.parent_id
    while ancestor and ancestor in parents:
        line.append(ancestor)
        ancestor = parents.pop(ancestor)
    return {pk: number for number, pk in enumerate(reversed(line))}


def _rows(conversation_id: str, line: dict[str, int]) -> list[Row]:
    found = [r for r in sql.rows(_ITEMS, [conversation_id]) if r[0] in line]
    found.sort(key=lambda row: (line[row[0]], row[1]))
    payloads = _read([row[5] for row in found])
    return [
        Row._make((*row[:5], payload, json.loads(row[6]) if row[6] else None))
        for row, payload in zip(found, payloads, strict=True)
    ]


def _read(texts: Sequence[str]) -> list[Any]:
    try:
        read: list[Any] = orjson.loads(f"[{','.join(texts)}]")
    except orjson.JSONDecodeError:  # half a character, which Python's own JSON takes
        return [json.loads(text) for text in texts]
    return read
