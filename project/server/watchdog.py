"""Watchdog that logs when the event loop was blocked.

While a callback blocks the event loop, every stream and every request waits. The
watchdog sets a timer; the delay of the timer is the duration of the block. The log line
contains the CPU time of the process in that period: a low value means that the machine
was busy with other processes. It logs numbers only, at most one line a minute. The mean
delay is one of the signs of overload (`conversations.access.overload`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from conversations.access import overload

logger = logging.getLogger(__name__)

LIMIT = 0.1  # seconds; a longer delay is a stall
PAUSE = 60.0  # seconds between two log lines
INTERVAL = 0.02  # seconds between two checks


@dataclass(slots=True)
class StallTotals:
    """The stalls since the process began."""

    count: int = 0
    seconds: float = 0.0


totals = StallTotals()


class Watchdog:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        cpu_time: Callable[[], float] = time.process_time,
    ) -> None:
        self._loop = loop
        self._cpu_time = cpu_time
        self._logged_at = -PAUSE + loop.time()
        self._stalls = 0  # since the last log line
        self._longest = 0.0  # seconds; the longest of these stalls
        self._timer: asyncio.TimerHandle | None = None
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        self._due = self._loop.time() + INTERVAL
        self._cpu_before = self._cpu_time()
        self._timer = self._loop.call_later(INTERVAL, self._check_delay)

    def _check_delay(self) -> None:
        delay = self._loop.time() - self._due
        overload.load.update(delay)
        if delay > LIMIT:
            self._record_stall(delay, self._cpu_time() - self._cpu_before)
        self._set_timer()

    def _record_stall(self, delay: float, cpu: float) -> None:
        totals.count += 1
        totals.seconds += delay
        self._stalls += 1
        self._longest = max(self._longest, delay)
        now = self._loop.time()
        if now - self._logged_at < PAUSE:
            return
        logger.warning(
            "the event loop was blocked for %.0f ms (%.0f ms of CPU); stalls since the"
            " last line: %d, the longest %.0f ms",
            delay * 1000,
            cpu * 1000,
            self._stalls,
            self._longest * 1000,
        )
        self._logged_at, self._stalls, self._longest = now, 0, 0.0
