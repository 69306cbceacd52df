"""Snapshots of a run: which uncommitted items a heartbeat stores, and how often."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from conversations.engine.lease_store import ProviderResponse, Snapshot
from conversations.engine.runs.state import RunState, length_of

#: A snapshot holds all uncommitted text, and one transaction renews the leases of all
#: runs, so long snapshots are stored less often: at most so many characters a second
#: ...
PACE = 1_000_000
LONGEST = 16_000_000  # ... and none beyond this length
LONG = 100_000  # characters; a longer snapshot is written separately

STORING_TIME = 0.25  # seconds that the snapshots of one heartbeat should take
#: Characters. Storing a row takes as long as this much text, in addition to its text.
ROW_COST = 500
FIRST_BUDGET = 400_000  # characters
MAX_BUDGET = 100_000_000
GROWTH = 1.25  # of the budget, after a heartbeat that was quick enough


class SnapshotBudget:
    """How many characters of snapshots a heartbeat stores.

    The database takes about a millisecond for a snapshot of some kilobytes. Hundreds of
    runs would keep it busy until their leases lapse, and other workers would begin all
    of their answers again. So a slow heartbeat leaves snapshots to the following ones.
    """

    def __init__(self) -> None:
        self.characters = FIRST_BUDGET

    def adjust(self, sent: int, seconds: float, *, is_stored: bool) -> None:
        """`sent` characters have just taken this long, or failed after it: PostgreSQL
        cancels a heartbeat that takes too long.

        A heartbeat that had less to store than it might shows nothing. If it counted,
        a quiet minute would let the next burst of answers block the database.
        """
        if seconds > STORING_TIME:
            self.characters = max(LONG, int(sent * STORING_TIME / seconds))
        elif is_stored and sent >= self.characters:
            self.characters = min(MAX_BUDGET, int(self.characters * GROWTH))


@dataclass(slots=True, eq=False, repr=False)
class Snapshots:
    """Takes the snapshots of one run."""

    state: RunState
    clock: Callable[[], float] = time.monotonic
    is_long: bool = False  # the last one was long
    taken_at: float = 0.0  # time of the last one, by the clock
    _taken_events: int = 0  # number of events that were published then
    _due: float = 0.0  # when the next one may be taken
    _stored_pending: ProviderResponse | None = None  # as in the last one

    def take(self) -> Snapshot | None:
        """The uncommitted items. None if there is nothing new, and while a write is in
        progress: should it fail, they would be stored in neither place."""
        state = self.state
        if state.writes:
            return None
        sequence = state.builder.sequence
        now = self.clock()
        pending = state.pending_response()
        is_news = sequence != self._taken_events or pending != self._stored_pending
        if not is_news or now < self._due:
            return None
        items = state.uncommitted_items()
        length = length_of(items)
        self._due = now + length / PACE
        self.is_long = length > LONG
        if length > LONGEST:
            return None
        self.taken_at, self._taken_events = now, sequence
        self._stored_pending = pending
        state.has_progressed |= length > state.resumed_length
        return Snapshot(
            items,
            state.builder.content_sequence,
            length=length,
            is_long=self.is_long,
            is_progress=state.has_progressed,
            provider_response=pending,
        )

    def retake(self) -> None:
        """The last snapshot was not stored: take the next one without further events,
        as the provider may stay silent for a long time."""
        self._taken_events = -1
