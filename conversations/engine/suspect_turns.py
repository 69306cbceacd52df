"""The gate that lets a suspect run alone.

A suspect is a turn that has been claimed repeatedly without progress, so that it may be
the cause of the ended processes. It runs beside no turn that has not progressed yet.

A turn that is a suspect for the first time was probably only running beside the one
that ended the process, and there may be hundreds of these. It therefore starts beside
turns that have progressed: they lose nothing if the process ends. A turn that is a
suspect again starts when no other turn is active. If some turn always is, the suspect
starts after PATIENCE beside the running turns, and later turns wait. See `sql.TRUSTED`.
"""

from __future__ import annotations

import asyncio
import math

PATIENCE = 30.0  # seconds for which a suspect waits for other turns
LONGEST_ALONE = 30.0  # seconds for which other turns wait for a suspect


class SuspectGate:
    """Open while turns may start: closed while a suspect runs alone and has not
    progressed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._gate = asyncio.Event()
        self._gate.set()
        self.is_open = True
        self.suspect = ""  # the turn that runs alone
        self._alone_since = math.inf
        self._found_at = math.inf  # when the waiting suspect was first found

    async def wait(self) -> None:
        await self._gate.wait()

    def note_waiting(self) -> None:
        """A suspect was found; its patience counts from the first time."""
        self._found_at = min(self._found_at, self._loop.time())

    def close_for(self, turn_id: str, *, must_wait: bool) -> bool:
        """Close the gate for a suspect. False if another runs alone, or if it has to
        wait for other turns and has not waited long enough."""
        now = self._loop.time()
        has_patience_left = now - self._found_at < PATIENCE
        if self.suspect or (must_wait and has_patience_left):
            return False
        self.suspect, self._alone_since = turn_id, now
        self._found_at = math.inf
        self._gate.clear()
        self.is_open = False
        return True

    def open_after(self, *, has_progressed: bool) -> None:
        """Let other turns start once the suspect has progressed or takes too long."""
        if has_progressed or self._loop.time() - self._alone_since > LONGEST_ALONE:
            self._open()

    def end(self, turn_id: str) -> None:
        """Open the gate if it is this turn that ran alone."""
        if turn_id == self.suspect:
            self.suspect = ""
            self._open()

    def _open(self) -> None:
        self._gate.set()
        self.is_open = True

    def forget_waiting(self) -> None:
        """No suspect waits any more."""
        self._found_at = math.inf
