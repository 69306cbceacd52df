"""A watchdog that logs when the event loop stands still.

While something runs on the event loop, every stream and every request waits. A timer is
set for a moment from now; how late it rings is how long nothing else ran. The line says
how much CPU the process used meanwhile, which tells work of ours from a machine that
was busy with something else. Lines hold numbers only, one a minute at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

LIMIT = 0.1  # seconds; longer is a stall
PAUSE = 60.0  # seconds from one line to the next
_INTERVAL = 0.02  # seconds between two looks


class Watchdog:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cpu_time: Callable[[], float] = time.process_time,
    ) -> None:
        self._loop = loop
        self._cpu_time = cpu_time
        self._logged_at = -PAUSE + loop.time()
        self._stalls = 0  # since the last line
        self._longest = 0.0  # seconds, of those
        self._timer: asyncio.TimerHandle | None = None
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self._due = self._loop.time() + _INTERVAL
        self._cpu_before = self._cpu_time()
        self._timer = self._loop.call_later(_INTERVAL, self._look)

    def _look(self) -> None:
        late = self._loop.time() - self._due
        if late > LIMIT:
            self._note(late, self._cpu_time() - self._cpu_before)
        self._set_timer()

    def _note(self, late: float, cpu: float) -> None:
        self._stalls += 1
        self._longest = max(self._longest, late)
        now = self._loop.time()
        if now - self._logged_at < PAUSE:
            return
        logger.warning(
            "the event loop stood still for %.0f ms (%.0f ms of CPU); stalls since the"
            " last line: %d, the longest %.0f ms",
            late * 1000,
            cpu * 1000,
            self._stalls,
            self._longest * 1000,
        )
        self._logged_at, self._stalls, self._longest = now, 0, 0.0
