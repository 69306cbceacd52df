"""Rate limits: requests, bytes and tokens a minute, for access tokens and users.

Each limit is a token bucket: it has room for one minute's amount, and refills steadily.
In one process the buckets are in memory; where REDIS_URL is set they are in Redis,
changed by one script in one round trip. While Redis is unavailable each process counts
for itself and logs a warning: failing limits must not stop the service. The database is
not used.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from django.conf import settings

from conversations.throttled_warning import ThrottledWarning
from llm.concurrency.per_loop import PerLoop

MINUTE = 60.0  # seconds
MAX_BUCKETS = (
    100_000  # buckets; if there are more, those that are full again are deleted
)
REDIS_TIMEOUT = 0.5  # seconds to wait for Redis
CONNECTIONS = 16  # for each event loop; requests wait for a free one
RETRY_PAUSE = 1.0  # seconds before Redis is tried again after a failure

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


#: `Buckets.take` with Redis' own clock. KEYS: the buckets. ARGV: for each bucket its
#: limit, the amount, 1 if `is_taken`, and 1 if `is_unconditional`. Returns 1 (allowed)
#: or 0, and the levels.
SCRIPT = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local levels, allowed = {}, 1
for i, key in ipairs(KEYS) do
  local limit, amount = tonumber(ARGV[4 * i - 3]), tonumber(ARGV[4 * i - 2])
  local kept = redis.call('HMGET', key, 'level', 'at')
  local level = tonumber(kept[1] or limit)
  local passed = math.max(0, now - tonumber(kept[2] or now))
  levels[i] = math.min(limit, level + passed * limit / 60)
  if ARGV[4 * i] == '0' and amount > 0
      and levels[i] + 0.000001 < math.min(amount, limit) then
    allowed = 0
  end
end
local told = {allowed}
for i, key in ipairs(KEYS) do
  local limit, amount = tonumber(ARGV[4 * i - 3]), tonumber(ARGV[4 * i - 2])
  if allowed == 1 and ARGV[4 * i - 1] == '1' then
    levels[i] = math.max(-limit, math.min(limit, levels[i] - amount))
  end
  local level = string.format('%.6f', levels[i])
  redis.call('HSET', key, 'level', level, 'at', string.format('%.6f', now))
  redis.call('EXPIRE', key, 180)
  told[i + 1] = level
end
return told
"""


class RedisBuckets:
    """Buckets in Redis, for all processes: `take` in threads, `atake` in tasks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._fallback = Buckets()  # used while Redis is unavailable
        self._away_until = 0.0
        self._warning = ThrottledWarning(
            logger,
            "Redis is unavailable (%s): this process applies the rate limits alone",
        )

    def take(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        if time.monotonic() < self._away_until:
            return self._take_locally(owner, charges)
        try:
            return _verdict(charges, self._script(*_arguments(owner, charges)))
        except self._failures as exc:
            return self._take_locally(owner, charges, exc)

    async def atake(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        if time.monotonic() < self._away_until:
            return self._take_locally(owner, charges)
        try:
            script = self._connections().script
            return _verdict(charges, await script(*_arguments(owner, charges)))
        except self._failures as exc:
            return self._take_locally(owner, charges, exc)

    async def aclose(self) -> None:
        """Close connections of the running loop and of threads; use reopens them."""
        if found := self._connections.pop():
            await found.client.aclose()
        if "_script" in self.__dict__:
            self._script.registered_client.close()

    def _take_locally(
        self, owner: str, charges: Sequence[Charge], exc: Exception | None = None
    ) -> Verdict:
        if exc is not None:
            self._away_until = time.monotonic() + RETRY_PAUSE
            self._warning.log(type(exc).__name__)
        return self._fallback.take(owner, charges, time.monotonic())

    @cached_property
    def _failures(self) -> tuple[type[Exception], ...]:
        from redis.exceptions import RedisError

        return RedisError, OSError, TimeoutError

    @cached_property
    def _script(self) -> Any:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client = Redis.from_url(self._url, **_options(Retry(NoBackoff(), 0)))
        return client.register_script(SCRIPT)

    @cached_property
    def _connections(self) -> PerLoop[_LoopConnections]:
        return PerLoop(lambda: _LoopConnections(self._url))


class _LoopConnections:
    """The connections of one event loop."""

    def __init__(self, url: str) -> None:
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        pool = BlockingConnectionPool.from_url(
            url, max_connections=CONNECTIONS, **_options(Retry(NoBackoff(), 0))
        )
        self.client: Any = Redis.from_pool(pool)
        self.script: Any = self.client.register_script(SCRIPT)


def _options(retry: Any) -> dict[str, Any]:
    """`retry`: the no-retry policy object of the sync or the async client."""
    return {
        "socket_timeout": REDIS_TIMEOUT,
        "socket_connect_timeout": REDIS_TIMEOUT,
        "retry": retry,
    }


def _arguments(owner: str, charges: Sequence[Charge]) -> tuple[list[str], list[Any]]:
    keys = [f"parley:limit:{owner}:{each.name}" for each in charges]
    arguments: list[Any] = []
    for each in charges:
        arguments += [
            each.limit,
            each.amount,
            int(each.is_taken),
            int(each.is_unconditional),
        ]
    return keys, arguments


def _verdict(charges: Sequence[Charge], reply: Sequence[Any]) -> Verdict:
    levels = [float(level) for level in reply[1:]]
    buckets = [BucketState(*pair) for pair in zip(charges, levels, strict=True)]
    return Verdict(bool(reply[0]), buckets)


_memory = Buckets()


@cache
def _redis(url: str) -> RedisBuckets:
    return RedisBuckets(url)


def take(owner: str, charges: Sequence[Charge]) -> Verdict:
    """Make all charges or none. For threads."""
    if not charges:
        return Verdict(True, ())
    if settings.REDIS_URL:
        return _redis(settings.REDIS_URL).take(owner, charges)
    return _memory.take(owner, charges, time.monotonic())


def charge(owner: str, used: Charge) -> None:
    """Charge unconditionally what was used; an amount below 0 is a refund."""
    take(owner, [replace(used, is_unconditional=True)])


async def atake(owner: str, charges: Sequence[Charge]) -> Verdict:
    """Like `take`, for event loops."""
    if settings.REDIS_URL and charges:
        return await _redis(settings.REDIS_URL).atake(owner, charges)
    return take(owner, charges)


async def aclose() -> None:
    """Close the connections of the running event loop."""
    if settings.REDIS_URL:
        await _redis(settings.REDIS_URL).aclose()
