"""The deadline of a turn, which stops while a person is asked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from conversations.engine import question_store
from conversations.engine.claim_store import Claim
from conversations.engine.runs.state import RunState
from conversations.engine.runs.writes import RunWrites
from llm.http.timers import deadline_timer


@dataclass(slots=True, eq=False, repr=False)
class TurnClock:
    """A `timers.TimedOperation` that stops the run at the turn's deadline."""

    state: RunState
    writes: RunWrites
    until: float = math.inf  # event loop time of the deadline
    _open_forms: int = 0
    _seconds_left: float = 0.0  # until the deadline, while forms are open

    def begin(self, seconds: float) -> None:
        deadline = deadline_timer.of[asyncio.get_running_loop()]
        self.until = deadline.loop.time() + seconds
        deadline.add(self)

    def end(self) -> None:
        deadline_timer().remove(self)

    def on_timer(self) -> None:
        """The deadline has passed."""
        self.until = math.inf
        self.state.cancel("deadline")

    def stop(self) -> None:
        """Stop while a form is open; several may be."""
        self._open_forms += 1
        if self._open_forms == 1:
            self._seconds_left = self.until - deadline_timer().loop.time()
            self.until = math.inf
            self._save(question_store.stop_clock)

    def start(self) -> None:
        """Start again once no form is open."""
        self._open_forms -= 1
        if not self._open_forms:
            deadline = deadline_timer()
            self.until = deadline.loop.time() + self._seconds_left
            deadline.fire_by(self.until)
            self._save(question_store.start_clock)

    def _save(self, write: Callable[[Claim, float], None]) -> None:
        self.writes.write_later(write, self.state.claim, self._seconds_left)
