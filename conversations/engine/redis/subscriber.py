"""Redis Streams subscriber: the turn logs in Redis that have subscribers here.

The process that runs a turn publishes each batch as it is written. Where a batch does
not continue what is known here, at first and after a loss, the missing entries are read
from the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from conversations.engine.event_log import Entry, Position
from conversations.engine.process.task_shutdown import cancel_and_wait
from conversations.engine.redis.encoding import (
    CHUNK_SIZE,
    large_event_key,
    stream_key,
)
from conversations.engine.redis.pubsub import UNAVAILABLE, RedisBus
from conversations.engine.redis.resp import Command
from conversations.engine.shared_log.event_batches import STORED_SEPARATELY
from conversations.engine.shared_log.subscriber import (
    READ_LIMIT,
    LogSubscriber,
    SharedTurnLog,
    StoredBatch,
    unpack_all,
)


class RedisSubscriber(LogSubscriber):
    def __init__(self, bus: RedisBus) -> None:
        super().__init__("Redis")
        self._bus = bus
        self._fetching: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        await super().close()
        await cancel_and_wait([*self._fetching])

    def _begin_receiving(self, turn_id: str) -> bool:
        return self._bus.subscribe(turn_id, partial(self._receive, turn_id))

    def _end_receiving(self, turn_id: str) -> None:
        self._bus.unsubscribe(turn_id)

    def _receive(self, turn_id: str, message: bytes) -> None:
        """Take a batch with its position; an empty message means that some may have
        been lost."""
        log = self._logs[turn_id]
        position, _, data = message.partition(b" ")
        batch = (
            StoredBatch(Position.parse(position.decode()), data) if position else None
        )
        if batch is None or log.is_waiting or not log.continues_at(batch.start):
            self.request_read([turn_id])
        else:
            self._apply(log, [batch])

    async def _read(self, logs: Sequence[SharedTurnLog]) -> None:
        await self._bus.connect()
        answers = await self._bus.execute([_range_command(log) for log in logs])
        for log, found in zip(logs, answers, strict=True):
            if isinstance(found, Exception):
                raise found
            if found and not log.is_waiting:
                self._apply(log, [_batch(raw) for raw in found])
            if len(found) == READ_LIMIT:
                self.request_read([log.turn_id])

    def _apply(self, log: SharedTurnLog, batches: Sequence[StoredBatch]) -> None:
        entries = unpack_all(log.turn_id, batches)
        large = [entry for entry in entries if entry.data == STORED_SEPARATELY]
        if large:
            log.is_waiting = True
            task = asyncio.ensure_future(self._fetch(log, entries, large))
            self._fetching.add(task)
            task.add_done_callback(self._fetching.discard)
        else:
            self._add(log, entries)

    async def _large(self, key: str) -> bytes:
        """Read a large event in chunks, see `encoding.CHUNK_SIZE`; empty if it has
        expired."""
        redis, pieces = self._bus.redis, []
        size = await redis.strlen(key)
        for first in range(0, size, CHUNK_SIZE):
            pieces.append(await redis.getrange(key, first, first + CHUNK_SIZE - 1))
        data = b"".join(pieces)
        return data if len(data) == size else b""

    async def _fetch(
        self, log: SharedTurnLog, entries: list[Entry], large: list[Entry]
    ) -> None:
        """Fetch the events that are stored separately; other turns are read
        meanwhile."""
        try:
            with suppress(*UNAVAILABLE):  # the next read tries again
                for entry in large:
                    key = large_event_key(log.turn_id, entry.log_position)
                    if not (data := await self._large(key)):
                        entries = entries[: entries.index(entry)]
                        break
                    entry.data = data
                self._add(log, entries)
        finally:
            log.is_waiting = False
            self.request_read([log.turn_id])


def _range_command(log: SharedTurnLog) -> Command:
    after = f"({log.last_position}" if log.entries else "-"
    return ("XRANGE", stream_key(log.turn_id), after, "+", "COUNT", READ_LIMIT)


def _batch(raw: Any) -> StoredBatch:
    id, [_, data] = raw
    return StoredBatch(Position.parse(id.decode()), data)
