"""The event log of many processes, stored in Redis."""

from __future__ import annotations

from collections.abc import Callable

from conversations.engine.bus import Bus
from conversations.engine.log import TurnLog
from conversations.engine.mirrors import Mirror, Mirrors
from conversations.engine.outbox import Outbox, RunLog


class RedisLog:
    """Runs write to Redis and subscribers read from it, in the same process too: so all
    subscribers get what Redis has accepted, and none gets the events of a run that has
    lost its lease."""

    def __init__(self, bus: Bus) -> None:
        self._outbox = Outbox(bus)
        self.mirrors = Mirrors(bus)

    def start(self) -> None:
        self._outbox.start()
        self.mirrors.start()

    async def aclose(self) -> None:
        await self._outbox.close()
        await self.mirrors.close()

    def journal(self, turn_id: str, fenced: Callable[[], None]) -> RunLog:
        return self._outbox.open(turn_id, fenced)

    def close(self, turn_id: str) -> None:
        self._outbox.end(turn_id)

    async def follow(self, turn_id: str) -> Mirror:
        return await self.mirrors.follow(turn_id)

    def leave(self, log: TurnLog) -> None:
        self.mirrors.leave(log)

    def get(self, turn_id: str) -> Mirror | None:
        return self.mirrors.get(turn_id)

    def drop(self, turn_id: str) -> None:
        self.mirrors.drop(turn_id)

    def wake_all(self) -> None:
        self.mirrors.wake_all()
