"""What a server has on record of one message, and what was shown of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.clients import Screen

from .wish import Wish

Row = Mapping[str, Any]
RESULT_CALL_ID = "parley:call_id"  # on a message that delivers a result


@dataclass(slots=True)
class StoredTurn:
    wish: Wish
    wire: str
    turns: list[dict[str, Any]]  # oldest first
    calls: list[dict[str, Any]]
    #: Screens of the first turn: of one subscriber from the start, and of a late one.
    shown: tuple[Screen, ...] = field(default=())

    @property
    def is_settled(self) -> bool:
        """All turns are over, and all background results are delivered."""
        return (
            bool(self.turns)
            and all(turn["finished_at"] for turn in self.turns)
            and all(call["delivered_in"] or call["blocking"] for call in self.calls)
        )

    def items(self) -> Iterator[Row]:
        for turn in self.turns:
            yield from turn["items"]


def text_of(item: Row) -> str:
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    return "".join(part.get("text") or "" for part in parts)


def is_whole(item: Row) -> bool:
    return not item.get("parley:interrupted") and item.get("status") != "incomplete"
