"""Overload protection: a process measures its load, and refuses work above its limits.

The server's watchdog calls `Load.update` fifty times a second. Every entry point calls
`check_room` before anything else, which reads the result: a refusal must cost less than
the work that it avoids.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from mmap import PAGESIZE
from pathlib import Path

from django.conf import settings

from conversations.access.errors import ServerBusy
from conversations.throttled_warning import ThrottledWarning

#: The settings that are limits. The first one that is reached is the reason of a
#: refusal.
LIMITS = (
    "MAX_LAG",
    "MAX_MEMORY",
    "MAX_START_WAIT",
    "MAX_WAITING_TURNS",
    "MAX_CONNECTIONS",
)
#: Weight of the newest measurement in the mean lag. At 50 measurements a second the
#: mean follows a change within about a second.
_NEWEST = 0.02
_RETRY_AFTER = 2.0  # seconds
#: In pages of memory; https://docs.kernel.org/filesystems/proc.html
_STATM = Path("/proc/self/statm")
_PAGE = PAGESIZE / 1e6  # megabytes


def _zero() -> float:
    return 0.0


@dataclass(slots=True)
class Load:
    """The newest measurements of this process, and functions that measure."""

    lag: float = 0.0  # mean seconds by which the event loop calls a timer late
    memory: float = 0.0  # megabytes
    excess: str = ""  # the setting whose limit was reached at the last update
    #: Since the process began, by limit.
    refusals: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LIMITS, 0))
    #: Called at each update; the gateway and the engine set their own functions.
    opening_wait: Callable[[], float] = field(default=_zero)  # seconds
    start_wait: Callable[[], float] = field(default=_zero)  # seconds, once opened
    waiting_turns: Callable[[], float] = field(default=_zero)
    connections: Callable[[], float] = field(default=_zero)

    def update(self, delay: float) -> None:
        """`delay`: seconds by which the event loop has called this too late."""
        self.lag += _NEWEST * (delay - self.lag)
        self.excess = find_excess(self)

    def note_memory(self) -> None:
        self.memory = _read_memory()


load = Load()
_MESSAGE = "new work is refused: %s is reached (docs/scaling.md)"
refusal_warnings = {
    name: ThrottledWarning(logging.getLogger(__name__), _MESSAGE) for name in LIMITS
}


def check_room() -> None:
    """Raises ServerBusy if a limit of this process is reached. Thread-safe."""
    if limit := load.excess:
        raise note_refusal(limit)


def check_connections() -> None:
    """Like `check_room`, of connections alone and as many as there are now: for
    requests of other processes, whose load this one does not know."""
    limit = settings.MAX_CONNECTIONS
    if limit and load.connections() >= limit:
        raise note_refusal("MAX_CONNECTIONS")


def note_refusal(limit: str) -> ServerBusy:
    """Count a refusal because of this limit, and tell the operator. Returns its
    error."""
    load.refusals[limit] += 1
    refusal_warnings[limit].log(limit)
    return ServerBusy(retry_after=_RETRY_AFTER)


def find_excess(load: Load) -> str:
    """The setting whose limit is reached, or ""."""
    values = (
        load.lag,
        load.memory,
        load.opening_wait() + load.start_wait(),
        load.waiting_turns(),
        load.connections(),
    )
    for name, value in zip(LIMITS, values, strict=True):
        # Most values are 0, which reaches no limit.
        if value and (limit := getattr(settings, name)) and value >= limit:
            return name
    return ""


def _read_memory() -> float:
    """Resident memory of this process in megabytes; 0 except on Linux."""
    if sys.platform != "linux":
        return 0.0
    return int(_STATM.read_text().split()[1]) * _PAGE
