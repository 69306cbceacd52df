"""A semaphore that serves the owners of waiting work in turn."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Hashable

#: Weight of the newest interval in the mean interval.
_NEWEST = 0.1


class FairSlots:
    """At most `count` pieces of work have a slot. The owners of waiting work are served
    in turn, and each owner's work in its order: a hundred pieces of one owner delay
    another owner's by one slot. For one event loop.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._free = count
        self._clock = clock
        self._interval = 0.0  # mean seconds between two waiters that were served
        self._served_at: float | None = None  # None: the queue is empty
        #: By owner; the next owner is the first key.
        self._waiting: dict[Hashable, deque[_Waiter]] = {}

    @property
    def waiting(self) -> int:
        """Thread-safe."""
        return sum(map(len, list(self._waiting.values())))

    @property
    def longest_wait(self) -> float:
        """Seconds for which the oldest waiting work has waited. Thread-safe."""
        if not self._waiting:
            return 0.0
        began = [_waits_since(queue) for queue in list(self._waiting.values())]
        return max(0.0, self._clock() - min(began, default=math.inf))

    @property
    def expected_wait(self) -> float:
        """Seconds that work would wait if it came now, at the recent rate. Thread-safe.

        The wait of the oldest work alone is too low while the queue grows: when it is
        served, much more is behind it than was before it.
        """
        if not self._waiting:
            return 0.0
        return max(self.longest_wait, self.waiting * self._interval)

    def locked(self) -> bool:
        return self._free <= 0 or bool(self._waiting)

    async def acquire(self, owner: Hashable = None) -> bool:
        if not self.locked():
            self._free -= 1
            return True
        waiter = _Waiter(self._clock())
        self._waiting.setdefault(owner, deque()).append(waiter)
        try:
            await waiter.served
        except asyncio.CancelledError:
            if waiter.served.done() and not waiter.served.cancelled():
                self.release()
            else:
                self._forget(owner, waiter)
            raise
        return True

    def release(self) -> None:
        """Give the slot to the next owner's first waiter, else free it."""
        while self._waiting:
            owner = next(iter(self._waiting))
            queue = self._waiting.pop(owner)
            waiter = queue.popleft()
            if queue:
                self._waiting[owner] = queue  # after all other owners
            if not waiter.served.done():
                waiter.served.set_result(None)
                self._note_served(waiter)
                return
        self._served_at = None
        self._free += 1

    def _note_served(self, waiter: _Waiter) -> None:
        now = self._clock()
        # A waiter with none before it counts, too. After a stall of the database,
        # overload protection lets only one wait at a time: only its short wait shows
        # that the stall is over.
        began = waiter.since if self._served_at is None else self._served_at
        weight = _NEWEST if self._interval else 1
        self._interval += weight * (now - began - self._interval)
        self._served_at = now

    def _forget(self, owner: Hashable, waiter: _Waiter) -> None:
        queue = self._waiting.get(owner)
        if queue is None or waiter not in queue:
            return
        queue.remove(waiter)
        if not queue:
            del self._waiting[owner]


class _Waiter:
    __slots__ = ("served", "since")

    def __init__(self, since: float) -> None:
        self.served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.since = since


def _waits_since(queue: deque[_Waiter]) -> float:
    try:
        return queue[0].since
    except IndexError:  # the event loop has served it meanwhile
        return math.inf
