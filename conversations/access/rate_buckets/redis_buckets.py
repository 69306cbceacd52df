"""Token buckets in Redis, changed by one script in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from conversations.access.rate_buckets.buckets import (
    Charge,
    SharedBuckets,
    Verdict,
    verdict_of,
)
from llm.concurrency.per_loop import PerLoop

REDIS_TIMEOUT = 0.5  # seconds to wait for Redis
CONNECTIONS = 16  # for each event loop; requests wait for a free one

#: `Buckets.take` with Redis' own clock. KEYS: the buckets. ARGV: for each bucket its
#: limit, the amount, 1 if `is_taken`, and 1 if `is_unconditional`. Returns 1 (allowed)
#: or 0, and the levels.
SCRIPT = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local levels, allowed = {}, 1
for i, key in ipairs(KEYS) do
  local limit, amount = tonumber(ARGV[4 * i - 3]), tonumber(ARGV[4 * i - 2])
  local stored = redis.call('HMGET', key, 'level', 'at')
  local level = tonumber(stored[1] or limit)
  local passed = math.max(0, now - tonumber(stored[2] or now))
  levels[i] = math.min(limit, level + passed * limit / 60)
  if ARGV[4 * i] == '0' and amount > 0
      and levels[i] + 0.000001 < math.min(amount, limit) then
    allowed = 0
  end
end
local reply = {allowed}
for i, key in ipairs(KEYS) do
  local limit, amount = tonumber(ARGV[4 * i - 3]), tonumber(ARGV[4 * i - 2])
  if allowed == 1 and ARGV[4 * i - 1] == '1' then
    levels[i] = math.max(-limit, math.min(limit, levels[i] - amount))
  end
  local level = string.format('%.6f', levels[i])
  redis.call('HSET', key, 'level', level, 'at', string.format('%.6f', now))
  redis.call('EXPIRE', key, 180)
  reply[i + 1] = level
end
return reply
"""


class RedisBuckets(SharedBuckets):
    def __init__(self, url: str) -> None:
        super().__init__("Redis")
        self._url = url

    async def aclose(self) -> None:
        if found := self._connections.pop():
            await found.client.aclose()
        if "_script" in self.__dict__:
            self._script.registered_client.close()

    def _request(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        return _verdict(charges, self._script(*_arguments(owner, charges)))

    async def _arequest(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        script = self._connections().script
        return _verdict(charges, await script(*_arguments(owner, charges)))

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
    return verdict_of(charges, bool(reply[0]), [float(level) for level in reply[1:]])
