"""Large events, which are stored in Redis beside the stream."""

from __future__ import annotations

from redis.exceptions import ConnectionError as RedisConnectionError

from conversations.engine.redis.encoding import CHUNK_SIZE, UNFINISHED_EXPIRY
from conversations.engine.redis.pubsub import RedisBus


async def store_large_event(bus: RedisBus, key: str, data: bytes) -> None:
    """Write an event in chunks, so that Redis replies in time to other commands too.

    Raises redis' ConnectionError if Redis has lost the earlier chunks.
    """
    for first in range(0, len(data), CHUNK_SIZE):
        piece = data[first : first + CHUNK_SIZE]
        async with bus.redis.pipeline(transaction=False) as pipeline:
            pipeline.strlen(key)
            pipeline.setrange(key, first, piece)
            pipeline.expire(key, UNFINISHED_EXPIRY)
            known, *_ = await pipeline.execute()
        if known < first:
            raise RedisConnectionError("it has begun anew")
