"""The event log of many processes, stored in Redis."""

from __future__ import annotations

from conversations.engine.redis.publisher import RedisPublisher
from conversations.engine.redis.pubsub import RedisBus
from conversations.engine.redis.subscriber import RedisSubscriber
from conversations.engine.shared_log.shared_log import SharedLog


class RedisLog(SharedLog):
    def __init__(self, bus: RedisBus) -> None:
        super().__init__(RedisPublisher(bus), RedisSubscriber(bus))
