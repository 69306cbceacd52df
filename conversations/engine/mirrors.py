"""What this process knows of the logs in Redis that somebody here follows.

Who runs a turn has Redis tell us each batch as soon as it is written. Where one does
not go on from what we know, at first and after a loss, we read what is missing, for all
such turns in one round trip; so we do once a second where nothing is told.
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
BACKOFF = 1.0  # seconds at the most between two tries


class Mirror(TurnLog):
    """A turn's log as far as it has been read."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(turn_id)
        self.read = asyncio.Event()  # once, or tried
        self.heard_at = 0.0  # when something new came
        self.is_waiting = False  # for an event that is kept by itself

    @property
    def place(self) -> Position:
        """Of the last entry."""
        return Position(self.epoch, len(self.entries) - 1)

    def add(self, entries: Iterable[Entry]) -> None:
        """Entries as they are in Redis, perhaps some that are known."""
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
                break  # something is missing; rows tell it
        self.entries.extend(new)

    def continues_at(self, start: Position) -> bool:
        """Whether nothing is missing between the entries and a batch from here on."""
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
        """From now on the turn is told from its rows."""
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
        """Those that somebody waits for."""
        mirrors = self._mirrors.values()
        return [m for m in mirrors if m.followers and not m.ended]

    def wake_all(self) -> None:
        for mirror in self._mirrors.values():
            mirror.wake()

    # Reading

    def told(self, turn_ids: Iterable[str]) -> None:
        """Something was said in these turns."""
        if news := self._mirrors.keys() & set(turn_ids):
            self._news |= news
            self._work.set()

    def _hear(self, turn_id: str, message: bytes) -> None:
        """A batch with its place; nothing where some may have been lost."""
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
                break  # rows tell the rest
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
        """Piece by piece, see `redis_wire.PIECE`; nothing where it is gone."""
        redis, pieces = self._bus.redis, []
        size = await redis.strlen(key)
        for first in range(0, size, PIECE):
            pieces.append(await redis.getrange(key, first, first + PIECE - 1))
        data = b"".join(pieces)
        return data if len(data) == size else b""

    async def _fetch(
        self, mirror: Mirror, entries: list[Entry], large: list[Entry]
    ) -> None:
        """Events that are kept by themselves; other turns go on meanwhile."""
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
