"""What has been said in the turns of this process, for whoever follows them.

A log holds the events of a turn's newest epoch, from its first: an event's place in the
list is its sequence number. Its position, `<epoch>-<sequence>`, orders it among all
events of the turn. Followers read the list, so a slow one holds nobody up and a late
one misses nothing; the events of a turn that is over are kept for a while and then made
from rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from llm.wire import sse
from llm.wire.items import Event
from llm.wire.response import TERMINAL

KEEP = 60.0  # seconds a turn that is over can be followed without its rows


class Position(NamedTuple):
    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Raises ValueError for anything but `<epoch>-<sequence>`."""
        epoch, dash, sequence = text.partition("-")
        if not (dash and epoch.isdecimal() and sequence.isdecimal()):
            raise ValueError(f"{text!r} is not a position such as '1-42'.")
        if len(text) > 30:
            raise ValueError("The position is too long.")
        return cls(int(epoch), int(sequence))


class Entry:
    """An event with its place, encoded once for all followers of one door.

    Of the event only its bytes are kept: a log holds a word an entry, by the thousand.
    """

    __slots__ = ("_frame", "_ws", "data", "place", "told_at", "turn_id", "type")

    def __init__(
        self, turn_id: str, place: Position, event: Event, told_at: Position | None
    ) -> None:
        self.turn_id = turn_id
        self.place = place
        self.type: str = event["type"]
        self.told_at = told_at  # where an earlier epoch told the same
        # Copied, because orjson's own bytes hold on to the 4 KB that it wrote them in.
        self.data = bytes(memoryview(orjson.dumps(event)))
        self._frame = b""
        self._ws = ""

    @property
    def position(self) -> str:
        return f"{self.place.epoch}-{self.place.sequence}"

    @property
    def event(self) -> Event:
        event: Event = orjson.loads(self.data)
        return event

    @property
    def is_last(self) -> bool:
        return self.type in TERMINAL

    @property
    def frame(self) -> bytes:
        """The event as Server-Sent Event."""
        if not self._frame:
            event = {"type": self.type}
            self._frame = sse.encode(event, self.data, self.position)
        return self._frame

    @property
    def ws(self) -> str:
        """The event as WebSocket message, with its turn and position."""
        if not self._ws:
            tail = f',"turn":"{self.turn_id}","position":"{self.position}"}}'
            self._ws = self.data[:-1].decode() + tail
        return self._ws


class Fenced(Exception):
    """Another run has taken the turn over; nothing of this one counts any more."""


class TurnLog:
    """One turn's events. Appended by one run, read by any number of followers."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.epoch = 0
        self.entries: list[Entry] = []
        self.ended = False
        self._waiting: list[asyncio.Future[None]] = []

    def append(
        self,
        epoch: int,
        events: Iterable[Event],
        told: Mapping[int, Position] | None = None,
    ) -> None:
        """`told`: by output index, where an earlier epoch told an item done.

        Raises Fenced where a later epoch has begun.
        """
        if epoch < self.epoch:
            raise Fenced
        if epoch > self.epoch:
            self.epoch, self.entries, self.ended = epoch, [], False
        for event in events:
            place = Position(epoch, event["sequence_number"])
            told_at = _told_at(event, told) if told is not None else None
            self.entries.append(Entry(self.turn_id, place, event, told_at))
            self.ended = self.ended or event["type"] in TERMINAL
        self.wake()

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self) -> None:
        """Returns at the next append or wake."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future


def _told_at(event: Event, told: Mapping[int, Position]) -> Position | None:
    if event["type"] in ("response.created", "response.in_progress"):
        return Position(1, 1)
    return told.get(event.get("output_index", -1))


class MemoryLog:
    """The logs of this process."""

    def __init__(self) -> None:
        self._logs: dict[str, TurnLog] = {}

    def get(self, turn_id: str) -> TurnLog | None:
        return self._logs.get(turn_id)

    def open(self, turn_id: str) -> TurnLog:
        if (log := self._logs.get(turn_id)) is None:
            log = self._logs[turn_id] = TurnLog(turn_id)
        return log

    def expire(self, turn_id: str) -> None:
        """Drop the turn's events after a while; its rows hold them."""
        asyncio.get_running_loop().call_later(KEEP, self.drop, turn_id)

    def drop(self, turn_id: str) -> None:
        self._logs.pop(turn_id, None)

    def wake_all(self) -> None:
        for log in self._logs.values():
            log.wake()


def entries_after(entries: list[Entry], after: Position | None) -> list[Entry]:
    """What a follower at `after` has not been told yet.

    One who comes from an earlier epoch is told to drop what was not committed there.
    """
    if after is None:
        return list(entries)
    epoch = entries[0].place.epoch
    if after.epoch >= epoch:
        return entries[after.sequence + 1 :] if after.epoch == epoch else []
    fresh = [e for e in entries if e.told_at is None or e.told_at > after]
    known = [e.event for e in entries if e.told_at and e.told_at <= after]
    seen = {event["output_index"] for event in known if "output_index" in event}
    return [_reset(entries[0].turn_id, after, len(seen)), *fresh]


def _reset(turn_id: str, after: Position, output_index: int) -> Entry:
    event = {
        "type": "parley:step.reset",
        "sequence_number": after.sequence + 1,
        "output_index": output_index,
    }
    return Entry(turn_id, after, event, None)
