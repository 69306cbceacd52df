"""Event log of many processes, over Redis or PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable

from conversations.engine.event_log import OpenLog, TurnLog
from conversations.engine.shared_log.publisher import LogPublisher
from conversations.engine.shared_log.run_log import RunLog
from conversations.engine.shared_log.subscriber import LogSubscriber, SharedTurnLog


class SharedLog:
    """Runs write to a storage that all processes share, and subscribers read from it,
    in the same process too: so all subscribers get what the storage has accepted, and
    none gets the events of a run that has lost its lease."""

    def __init__(self, publisher: LogPublisher, subscriber: LogSubscriber) -> None:
        self._publisher = publisher
        self.subscriber = subscriber
        self.delete = publisher.delete

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

    async def subscribe(self, turn_id: str) -> SharedTurnLog:
        return await self.subscriber.subscribe(turn_id)

    def unsubscribe(self, log: TurnLog) -> None:
        self.subscriber.unsubscribe(log)

    def get(self, turn_id: str) -> SharedTurnLog | None:
        return self.subscriber.get(turn_id)

    def drop(self, turn_id: str) -> None:
        self.subscriber.drop(turn_id)

    def active_logs(self) -> list[SharedTurnLog]:
        return self.subscriber.active_logs()

    def list_open(self) -> list[OpenLog]:
        return [*self._publisher.list_open(), *self.subscriber.list_open()]

    def wake_all(self) -> None:
        self.subscriber.wake_all()
