"""Which of the claimable turns a process takes next: authors are served in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MAX_AUTHORS = 10_000  # that are remembered


class ClaimableTurn(NamedTuple):
    turn_id: str
    author_id: int
    place: int  # among the author's unfinished turns, less one for each 30 s of waiting


class FairTurns:
    """Remembers when an author's turn was last taken, so that of turns with the same
    place the one of the author who has waited longest is next."""

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}
        self._count = 0

    def choose(self, found: Sequence[ClaimableTurn], room: int) -> list[ClaimableTurn]:
        """The turns to take, at most `room`."""
        taken = self._taken
        ranked = sorted(found, key=lambda turn: (turn.place, taken.get(turn[1], 0)))
        if len(taken) > MAX_AUTHORS:
            taken.clear()
        for turn in ranked[:room]:
            self._count += 1
            taken[turn.author_id] = self._count
        return ranked[:room]
