"""Redis Streams subscriber: the turn logs in Redis that have subscribers here.

The process that runs a turn publishes each batch as it is written. Where a batch does
not continue what is known here, at first and after a loss, the missing entries are read
from the stream, for all such turns in one round trip. The same happens once a second
for turns of which nothing is received.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from conversations.engine.event_log import RETENTION, Entry, Position, TurnLog
from conversations.engine.process.task_shutdown import cancel_and_wait
from conversations.engine.redis.encoding import (
    CHUNK_SIZE,
    STORED_SEPARATELY,
    large_event_key,
    stream_key,
    unpack,
)
from conversations.engine.redis.pubsub import REDIS_ERRORS, Bus
from conversations.engine.redis.resp import Command
from conversations.throttled_warning import ThrottledWarning

logger = logging.getLogger(__name__)

POLL_INTERVAL = 1.0  # seconds
READ_LIMIT = 200  # batches of one turn in one round trip
BACKOFF = 1.0  # seconds; longest pause between two attempts


class RedisTurnLog(TurnLog):
    """A turn's log in Redis, as far as it has been read here."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(turn_id)
        self.first_read = asyncio.Event()  # set after the first attempt to read
        self.received_at = 0.0  # when something new was received
        self.is_waiting = False  # for an event that is stored separately

    @property
    def last_position(self) -> Position:
        """The position of the last entry."""
        return Position(self.epoch, len(self.entries) - 1)

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries as they are in Redis; some may be known already."""
        new: list[Entry] = []
        for entry in entries:
            epoch, sequence = entry.log_position
            if epoch > self.epoch and sequence == 0:
                self.begin(epoch)
                new = []
            end = len(self.entries) + len(new)
            if epoch == self.epoch and sequence == end:
                new.append(entry)
                self.ended = self.ended or entry.is_last
            elif entry.log_position > (self.epoch, end - 1):
                break  # some are missing; the rows have them
        self.entries.extend(new)

    def continues_at(self, start: Position) -> bool:
        """Whether nothing is missing between the entries and a batch that starts
        here."""
        if start.epoch == self.epoch:
            return start.sequence <= len(self.entries)
        return start.epoch > self.epoch and start.sequence == 0


@dataclass(frozen=True, slots=True)
class _Batch:
    start: Position
    data: bytes


class RedisSubscriber:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._logs: dict[str, RedisTurnLog] = {}
        self._to_read: set[str] = set()
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._fetching: set[asyncio.Task[None]] = set()
        self._warning = ThrottledWarning(logger, "events cannot be read from Redis: %s")

    def start(self) -> None:
        self._tasks = [
            asyncio.ensure_future(self._run()),
            asyncio.ensure_future(self._poll_silent_logs()),
        ]

    async def close(self) -> None:
        await cancel_and_wait([*self._tasks, *self._fetching])

    async def subscribe(self, turn_id: str) -> RedisTurnLog:
        log = self._logs.get(turn_id)
        if log is None:
            log = self._logs[turn_id] = RedisTurnLog(turn_id)
            self._bus.subscribe(turn_id, partial(self._receive, turn_id))
            self.request_read([turn_id])
        log.subscriber_count += 1
        try:
            await log.first_read.wait()
        except asyncio.CancelledError:
            self.unsubscribe(log)
            raise
        return log

    def unsubscribe(self, log: TurnLog) -> None:
        log.subscriber_count -= 1
        if not log.subscriber_count:
            self._expire(log)

    def get(self, turn_id: str) -> RedisTurnLog | None:
        return self._logs.get(turn_id)

    def drop(self, turn_id: str) -> None:
        """Make subscribers read the turn from its rows from now on."""
        log = self._logs[turn_id] = RedisTurnLog(turn_id)
        log.is_over = True
        log.first_read.set()
        self._expire(log)

    def _expire(self, log: TurnLog) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(RETENTION, self._drop_unused, log)

    def _drop_unused(self, log: TurnLog) -> None:
        if not log.subscriber_count and self._logs.get(log.turn_id) is log:
            del self._logs[log.turn_id]
            self._bus.unsubscribe(log.turn_id)

    def active_logs(self) -> list[RedisTurnLog]:
        """The logs of turns that are not over and have subscribers."""
        logs = self._logs.values()
        return [m for m in logs if m.subscriber_count and not m.ended]

    def list_open(self) -> list[RedisTurnLog]:
        logs = list(self._logs.values())
        return [log for log in logs if not (log.ended or log.is_over)]

    def wake_all(self) -> None:
        for log in self._logs.values():
            log.wake()

    # Reading

    def request_read(self, turn_ids: Iterable[str]) -> None:
        """Read what is new in these turns."""
        if turns := self._logs.keys() & set(turn_ids):
            self._to_read |= turns
            self._work.set()

    def _receive(self, turn_id: str, message: bytes) -> None:
        """Take a batch with its position; an empty message means that some may have
        been lost."""
        log = self._logs[turn_id]
        position, _, data = message.partition(b" ")
        batch = _Batch(Position.parse(position.decode()), data) if position else None
        if batch is None or log.is_waiting or not log.continues_at(batch.start):
            self.request_read([turn_id])
        else:
            self._apply(log, [batch])

    async def _poll_silent_logs(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            quiet = loop.time() - POLL_INTERVAL
            self.request_read(
                [m.turn_id for m in self.active_logs() if m.received_at < quiet]
            )

    async def _run(self) -> None:
        pause = 0.05
        while True:
            await self._work.wait()
            self._work.clear()
            turn_ids, self._to_read = self._to_read, set()
            logs = [self._logs[id] for id in turn_ids if id in self._logs]
            try:
                await self._read([m for m in logs if not m.is_waiting])
                pause = 0.05
            except REDIS_ERRORS as exc:
                self._warning.log(type(exc).__name__)
                self._to_read |= turn_ids
                self._work.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, BACKOFF)
            finally:
                for log in logs:
                    log.first_read.set()

    async def _read(self, logs: list[RedisTurnLog]) -> None:
        if not logs:
            return
        await self._bus.connect()
        answers = await self._bus.execute([_range_command(log) for log in logs])
        for log, found in zip(logs, answers, strict=True):
            if isinstance(found, Exception):
                raise found
            if found and not log.is_waiting:
                self._apply(log, [_batch(raw) for raw in found])
            if len(found) == READ_LIMIT:
                self.request_read([log.turn_id])

    def _apply(self, log: RedisTurnLog, batches: list[_Batch]) -> None:
        entries: list[Entry] = []
        for batch in batches:
            if not batch.data:
                break  # the rows have the rest
            entries += unpack(log.turn_id, batch.start, batch.data)
        large = [entry for entry in entries if entry.data == STORED_SEPARATELY]
        if large:
            log.is_waiting = True
            task = asyncio.ensure_future(self._fetch(log, entries, large))
            self._fetching.add(task)
            task.add_done_callback(self._fetching.discard)
        else:
            self._add(log, entries)

    def _add(self, log: RedisTurnLog, entries: list[Entry]) -> None:
        before = log.last_position
        log.add(entries)
        if log.last_position > before:
            log.received_at = asyncio.get_running_loop().time()
            log.fallback = ()
            if log.epoch == before.epoch:
                log.publish(log.entries[before.sequence + 1 :])
            else:
                log.wake()

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
        self, log: RedisTurnLog, entries: list[Entry], large: list[Entry]
    ) -> None:
        """Fetch the events that are stored separately; other turns are read
        meanwhile."""
        try:
            with suppress(*REDIS_ERRORS):
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


def _range_command(log: RedisTurnLog) -> Command:
    after = f"({log.last_position}" if log.entries else "-"
    return ("XRANGE", stream_key(log.turn_id), after, "+", "COUNT", READ_LIMIT)


def _batch(raw: Any) -> _Batch:
    id, [_, data] = raw
    return _Batch(Position.parse(id.decode()), data)
