"""The event log of many processes, stored in Redis."""

from __future__ import annotations

from collections.abc import Callable

from conversations.engine.event_log import OpenLog, TurnLog
from conversations.engine.redis.publisher import RedisPublisher
from conversations.engine.redis.pubsub import Bus
from conversations.engine.redis.run_log import RunLog
from conversations.engine.redis.subscriber import RedisSubscriber, RedisTurnLog


class RedisLog:
    """Runs write to Redis and subscribers read from it, in the same process too: so all
    subscribers get what Redis has accepted, and none gets the events of a run that has
    lost its lease."""

    def __init__(self, bus: Bus) -> None:
        self._publisher = RedisPublisher(bus)
        self.subscriber = RedisSubscriber(bus)

    def start(self) -> None:
        self._publisher.start()
        self.subscriber.start()

    async def aclose(self) -> None:
        await self._publisher.close()
        await self.subscriber.close()

    def open_publisher(self, turn_id: str, on_fenced: Callable[[], None]) -> RunLog:
        return self._publisher.open(turn_id, on_fenced)

    def close(self, turn_id: str) -> None:
        self._publisher.end(turn_id)

    async def subscribe(self, turn_id: str) -> RedisTurnLog:
        return await self.subscriber.subscribe(turn_id)

    def unsubscribe(self, log: TurnLog) -> None:
        self.subscriber.unsubscribe(log)

    def get(self, turn_id: str) -> RedisTurnLog | None:
        return self.subscriber.get(turn_id)

    def drop(self, turn_id: str) -> None:
        self.subscriber.drop(turn_id)

    def active_logs(self) -> list[RedisTurnLog]:
        return self.subscriber.active_logs()

    def list_open(self) -> list[OpenLog]:
        return [*self._publisher.list_open(), *self.subscriber.list_open()]

    def wake_all(self) -> None:
        self.subscriber.wake_all()
