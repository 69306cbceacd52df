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

from conversations.engine.bus import AWAY, Bus
from conversations.engine.ending import end
from conversations.engine.log import KEEP, Entry, Position, TurnLog
from conversations.engine.redis_wire import (
    ELSEWHERE,
    PIECE,
    large_of,
    stream_of,
    unpack,
)
from conversations.engine.resp import Command
from conversations.throttled_warning import ThrottledWarning

logger = logging.getLogger(__name__)

LOOK = 1.0  # seconds
READ = 200  # batches of one turn in one round trip
BACKOFF = 1.0  # seconds; longest pause between two attempts


class Mirror(TurnLog):
    """A turn's log in Redis, as far as it has been read here."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(turn_id)
        self.read = asyncio.Event()  # set after the first attempt to read
        self.heard_at = 0.0  # when something new was received
        self.is_waiting = False  # for an event that is stored separately

    @property
    def place(self) -> Position:
        """The position of the last entry."""
        return Position(self.epoch, len(self.entries) - 1)

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries as they are in Redis; some may be known already."""
        new: list[Entry] = []
        for entry in entries:
            epoch, sequence = entry.place
            if epoch > self.epoch and sequence == 0:
                self.begin(epoch)
                new = []
            end = len(self.entries) + len(new)
            if epoch == self.epoch and sequence == end:
                new.append(entry)
                self.ended = self.ended or entry.is_last
            elif entry.place > (self.epoch, end - 1):
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


class Mirrors:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._mirrors: dict[str, Mirror] = {}
        self._news: set[str] = set()
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._fetching: set[asyncio.Task[None]] = set()
        self._warning = ThrottledWarning(logger, "no events from Redis: %s")

    def start(self) -> None:
        self._tasks = [
            asyncio.ensure_future(self._run()),
            asyncio.ensure_future(self._look()),
        ]

    async def close(self) -> None:
        await end([*self._tasks, *self._fetching])

    async def follow(self, turn_id: str) -> Mirror:
        mirror = self._mirrors.get(turn_id)
        if mirror is None:
            mirror = self._mirrors[turn_id] = Mirror(turn_id)
            self._bus.follow(turn_id, partial(self._hear, turn_id))
            self.told([turn_id])
        mirror.followers += 1
        try:
            await mirror.read.wait()
        except asyncio.CancelledError:
            self.leave(mirror)
            raise
        return mirror

    def leave(self, mirror: TurnLog) -> None:
        mirror.followers -= 1
        if not mirror.followers:
            self._expire(mirror)

    def get(self, turn_id: str) -> Mirror | None:
        return self._mirrors.get(turn_id)

    def drop(self, turn_id: str) -> None:
        """Make subscribers read the turn from its rows from now on."""
        mirror = self._mirrors[turn_id] = Mirror(turn_id)
        mirror.is_over = True
        mirror.read.set()
        self._expire(mirror)

    def _expire(self, mirror: TurnLog) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(KEEP, self._drop_unused, mirror)

    def _drop_unused(self, mirror: TurnLog) -> None:
        if not mirror.followers and self._mirrors.get(mirror.turn_id) is mirror:
            del self._mirrors[mirror.turn_id]
            self._bus.leave(mirror.turn_id)

    def followed(self) -> list[Mirror]:
        """The logs of turns that are not over and have subscribers."""
        mirrors = self._mirrors.values()
        return [m for m in mirrors if m.followers and not m.ended]

    def wake_all(self) -> None:
        for mirror in self._mirrors.values():
            mirror.wake()

    # Reading

    def told(self, turn_ids: Iterable[str]) -> None:
        """Read what is new in these turns."""
        if news := self._mirrors.keys() & set(turn_ids):
            self._news |= news
            self._work.set()

    def _hear(self, turn_id: str, message: bytes) -> None:
        """Take a batch with its position; an empty message means that some may have
        been lost."""
        mirror = self._mirrors[turn_id]
        place, _, data = message.partition(b" ")
        batch = _Batch(Position.parse(place.decode()), data) if place else None
        if batch is None or mirror.is_waiting or not mirror.continues_at(batch.start):
            self.told([turn_id])
        else:
            self._take(mirror, [batch])

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK)
            quiet = loop.time() - LOOK
            self.told([m.turn_id for m in self.followed() if m.heard_at < quiet])

    async def _run(self) -> None:
        pause = 0.05
        while True:
            await self._work.wait()
            self._work.clear()
            news, self._news = self._news, set()
            mirrors = [self._mirrors[id] for id in news if id in self._mirrors]
            try:
                await self._read([m for m in mirrors if not m.is_waiting])
                pause = 0.05
            except AWAY as exc:
                self._warning.log(type(exc).__name__)
                self._news |= news
                self._work.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, BACKOFF)
            finally:
                for mirror in mirrors:
                    mirror.read.set()

    async def _read(self, mirrors: list[Mirror]) -> None:
        if not mirrors:
            return
        await self._bus.connect()
        answers = await self._bus.ask([_after(mirror) for mirror in mirrors])
        for mirror, found in zip(mirrors, answers, strict=True):
            if isinstance(found, Exception):
                raise found
            if found and not mirror.is_waiting:
                self._take(mirror, [_batch(raw) for raw in found])
            if len(found) == READ:
                self.told([mirror.turn_id])

    def _take(self, mirror: Mirror, batches: list[_Batch]) -> None:
        entries: list[Entry] = []
        for batch in batches:
            if not batch.data:
                break  # the rows have the rest
            entries += unpack(mirror.turn_id, batch.start, batch.data)
        large = [entry for entry in entries if entry.data == ELSEWHERE]
        if large:
            mirror.is_waiting = True
            task = asyncio.ensure_future(self._fetch(mirror, entries, large))
            self._fetching.add(task)
            task.add_done_callback(self._fetching.discard)
        else:
            self._add(mirror, entries)

    def _add(self, mirror: Mirror, entries: list[Entry]) -> None:
        before = mirror.place
        mirror.add(entries)
        if mirror.place > before:
            mirror.heard_at = asyncio.get_running_loop().time()
            mirror.stand_in = ()
            if mirror.epoch == before.epoch:
                mirror.tell(mirror.entries[before.sequence + 1 :])
            else:
                mirror.wake()

    async def _large(self, key: str) -> bytes:
        """Read a large event in chunks, see `encoding.CHUNK_SIZE`; empty if it has
        expired."""
        redis, pieces = self._bus.redis, []
        size = await redis.strlen(key)
        for first in range(0, size, PIECE):
            pieces.append(await redis.getrange(key, first, first + PIECE - 1))
        data = b"".join(pieces)
        return data if len(data) == size else b""

    async def _fetch(
        self, mirror: Mirror, entries: list[Entry], large: list[Entry]
    ) -> None:
        """Fetch the events that are stored separately; other turns are read
        meanwhile."""
        try:
            with suppress(*AWAY):
                for entry in large:
                    key = large_of(mirror.turn_id, entry.place)
                    if not (data := await self._large(key)):
                        entries = entries[: entries.index(entry)]
                        break
                    entry.data = data
                self._add(mirror, entries)
        finally:
            mirror.is_waiting = False
            self.told([mirror.turn_id])


def _after(mirror: Mirror) -> Command:
    after = f"({mirror.place}" if mirror.entries else "-"
    return ("XRANGE", stream_of(mirror.turn_id), after, "+", "COUNT", READ)


def _batch(raw: Any) -> _Batch:
    id, [_, data] = raw
    return _Batch(Position.parse(id.decode()), data)
