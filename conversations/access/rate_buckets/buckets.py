"""Token buckets in the memory of one process, and the base of those on a server."""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from conversations.throttled_warning import ThrottledWarning

MINUTE = 60.0  # seconds
MAX_BUCKETS = 100_000  # above it, buckets that are full again are deleted
RETRY_PAUSE = 1.0  # seconds before the server is tried again after a failure

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Charge:
    """A charge of `amount` to a bucket that takes `limit` a minute.

    It is allowed if the bucket contains the amount. A charge larger than the bucket is
    allowed when the bucket is full, and leaves its level below 0.
    """

    name: str  # "requests", "bytes" or "tokens"
    limit: int  # a minute
    amount: float  # below 0 for a refund
    is_taken: bool = True  # False: only check that the amount is available
    is_unconditional: bool = False  # used already: charged even if it exceeds the level


@dataclass(frozen=True, slots=True)
class BucketState:
    """State of a bucket after a charge was allowed or refused."""

    charge: Charge
    level: float  # below 0 if more was used than the bucket contained

    @property
    def remaining(self) -> int:
        return max(0, math.floor(self.level + 1e-6))

    @property
    def full_in(self) -> float:
        """Seconds until the bucket is full."""
        return self._seconds_until(self.charge.limit)

    @property
    def available_in(self) -> float:
        """Seconds until the bucket contains the charged amount."""
        return self._seconds_until(min(self.charge.amount, self.charge.limit))

    def _seconds_until(self, level: float) -> float:
        return max(0.0, level - self.level) * MINUTE / self.charge.limit


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a list of charges: all were made, or none."""

    is_allowed: bool
    buckets: Sequence[BucketState]

    @property
    def retry_after(self) -> float:
        """Seconds until the charges would be allowed."""
        return max((bucket.available_in for bucket in self.buckets), default=0.0)


class Buckets:
    """Buckets in the memory of this process. Thread-safe."""

    def __init__(self) -> None:
        self.levels: dict[str, tuple[float, float]] = {}  # level, and the time of it
        self._lock = threading.Lock()

    def take(self, owner: str, charges: Sequence[Charge], now: float) -> Verdict:
        """`now`: seconds of a monotonic clock."""
        with self._lock:
            levels = [self._level(owner, each, now) for each in charges]
            pairs = list(zip(charges, levels, strict=True))
            allowed = all(_is_available(each, level) for each, level in pairs)
            if allowed:
                levels = [_level_after(each, level) for each, level in pairs]
            for each, level in zip(charges, levels, strict=True):
                self.levels[f"{owner}:{each.name}"] = level, now
            if len(self.levels) > MAX_BUCKETS:
                self._forget(now)
        return Verdict(
            allowed, [BucketState(*pair) for pair in zip(charges, levels, strict=True)]
        )

    def _level(self, owner: str, each: Charge, now: float) -> float:
        level, then = self.levels.get(f"{owner}:{each.name}", (each.limit, now))
        return min(each.limit, level + (now - then) * each.limit / MINUTE)

    def _forget(self, now: float) -> None:
        # No level is below minus one minute's amount: full again after two minutes.
        old = now - 2 * MINUTE
        self.levels = {k: v for k, v in self.levels.items() if v[1] > old}


def _is_available(each: Charge, level: float) -> bool:
    return (
        each.is_unconditional
        or each.amount <= 0
        or level + 1e-6 >= min(each.amount, each.limit)
    )


def _level_after(each: Charge, level: float) -> float:
    """The level after a charge: at least minus one minute's amount, at most full."""
    if not each.is_taken:
        return level
    return max(-float(each.limit), min(each.limit, level - each.amount))


class SharedBuckets(ABC):
    """Buckets on a server, for all processes: `take` in threads, `atake` in tasks.

    While the server is unavailable, this process counts for itself.
    """

    def __init__(self, server: str) -> None:
        self._fallback = Buckets()
        self._unavailable_until = 0.0
        self._warning = ThrottledWarning(
            logger,
            f"{server} is unavailable (%s): this process applies the rate limits alone",
        )

    def take(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        if time.monotonic() < self._unavailable_until:
            return self._take_locally(owner, charges)
        try:
            return self._request(owner, charges)
        except self._failures as exc:
            return self._take_locally(owner, charges, exc)

    async def atake(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        if time.monotonic() < self._unavailable_until:
            return self._take_locally(owner, charges)
        try:
            return await self._arequest(owner, charges)
        except self._failures as exc:
            return self._take_locally(owner, charges, exc)

    @abstractmethod
    async def aclose(self) -> None:
        """Close connections of the running loop and of threads; use reopens them."""

    @abstractmethod
    def _request(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        """Ask the server. Raises one of `_failures`."""

    @abstractmethod
    async def _arequest(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        """Like `_request`, for event loops."""

    @cached_property
    @abstractmethod
    def _failures(self) -> tuple[type[Exception], ...]:
        """What a request raises while the server is unavailable."""

    def _take_locally(
        self, owner: str, charges: Sequence[Charge], exc: Exception | None = None
    ) -> Verdict:
        if exc is not None:
            self._unavailable_until = time.monotonic() + RETRY_PAUSE
            self._warning.log(type(exc).__name__)
        return self._fallback.take(owner, charges, time.monotonic())


def verdict_of(
    charges: Sequence[Charge], is_allowed: bool, levels: Sequence[float]
) -> Verdict:
    """The verdict of a server that returned the levels after the charges."""
    pairs = zip(charges, levels, strict=True)
    return Verdict(is_allowed, [BucketState(*pair) for pair in pairs])
