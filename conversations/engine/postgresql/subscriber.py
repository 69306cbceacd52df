"""PostgreSQL subscriber: the turn logs in PostgreSQL that have subscribers here.

A process that has written batches announces their turns; those that have subscribers
here are read in one statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter

from conversations.engine.event_log import Position
from conversations.engine.postgresql import tables
from conversations.engine.postgresql.bus import PostgresBus
from conversations.engine.shared_log.subscriber import (
    READ_LIMIT,
    LogSubscriber,
    SharedTurnLog,
    StoredBatch,
)

# Seconds between two reads. A worker announces its events up to 25 times a second, so
# one read serves several workers: with four, it saves a sixth of a web process's CPU.
PAUSE = 0.03


class PostgresSubscriber(LogSubscriber):
    def __init__(self, bus: PostgresBus) -> None:
        super().__init__("PostgreSQL")
        self._bus = bus
        self._has_new_turn = asyncio.Event()
        bus.on_events = self._receive

    def _begin_receiving(self, turn_id: str) -> bool:
        self._has_new_turn.set()
        return False

    def _receive(self, turn_ids: Sequence[str] | None) -> None:
        """None: any turn may have new events."""
        if turn_ids is None:
            turn_ids = [log.turn_id for log in self.active_logs()]
        self.request_read(turn_ids)

    async def _read(self, logs: Sequence[SharedTurnLog]) -> None:
        positions = [log.last_position for log in logs]
        found = await self._bus.statements.fetch(
            tables.READ,
            {
                "turns": [log.turn_id for log in logs],
                "epochs": [position.epoch for position in positions],
                "lasts": [position.sequence for position in positions],
                "limit": READ_LIMIT,
            },
        )
        by_turn = {log.turn_id: log for log in logs}
        for turn_id, rows in groupby(found, key=itemgetter(0)):
            batches = [
                StoredBatch(Position(epoch, first), bytes(data))
                for _, epoch, first, data in rows
            ]
            self._apply(by_turn[turn_id], batches)
            if len(batches) == READ_LIMIT:
                self.request_read([turn_id])

    async def _pause(self) -> None:
        """Wait before the next read. A turn's first subscriber ends the wait: a short
        turn might end meanwhile, and its rows do not have its progress."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE):
                await self._has_new_turn.wait()
        self._has_new_turn.clear()
