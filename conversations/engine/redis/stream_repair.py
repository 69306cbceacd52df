"""Makes Redis hold what a run has sent, after a connection or Redis was lost."""

from __future__ import annotations

from typing import Any

from conversations.engine.event_log import Position
from conversations.engine.redis.encoding import (
    FIELD,
    FINISHED_EXPIRY,
    UNFINISHED_EXPIRY,
    stream_key,
)
from conversations.engine.redis.pubsub import RedisBus
from conversations.engine.shared_log.run_log import RunLog

#: Write a whole log again, unless a later epoch has begun.
_RESTORE_SCRIPT = """
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
if last[1] and tonumber(string.match(last[1][1], '^%d+')) > tonumber(ARGV[1]) then
  return 0
end
redis.call('DEL', KEYS[1])
for i = 4, #ARGV, 2 do
  redis.call('XADD', KEYS[1], ARGV[1] .. '-' .. ARGV[i], ARGV[3], ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 1
"""


async def verify(bus: RedisBus, log: RunLog) -> None:
    """Make Redis hold all batches up to `sent`, and none of another epoch."""
    key = stream_key(log.turn_id)
    async with bus.redis.pipeline(transaction=False) as pipeline:
        pipeline.xlen(key)
        pipeline.xrevrange(key, count=1)
        length, newest = await pipeline.execute()
    epoch, first = _newest_position(newest)
    if epoch > log.epoch:
        log.fence()
        return
    log.freeze()
    known = length <= len(log.batches) and epoch == log.epoch
    if known and length and log.batches[length - 1].first == first:
        log.sent = length
    elif log.sent or length:
        await _restore(bus, key, log)
    log.written = log.sent
    log.is_verified = True


async def _restore(bus: RedisBus, key: str, log: RunLog) -> None:
    whole = [part for batch in log.batches for part in batch]
    expiry = FINISHED_EXPIRY if log.ended else UNFINISHED_EXPIRY
    done: Any = bus.redis.eval(
        _RESTORE_SCRIPT, 1, key, log.epoch, expiry, FIELD, *whole
    )
    if await done:
        log.sent = len(log.batches)
        channel = bus.channel_of(log.turn_id)
        await bus.redis.publish(channel, b"")
    else:
        log.fence()


def _newest_position(newest: list[Any]) -> Position:
    if not newest:
        return Position(0, 0)
    return Position.parse(newest[0][0].decode())
