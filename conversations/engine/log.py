"""The event log of this process's turns.

A log holds the events of a turn's newest epoch, from the first; an event's index is its
sequence number. Its position, `<epoch>-<sequence>`, orders it among all events of the
turn. Subscribers read the list, so a slow one delays no other and a late one misses
nothing. The events of a finished turn are retained for a while, and are made from its
rows after that.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from conversations.engine.entries import (
    Entries,
    Entry,
    Position,
    encoded,
    entry_of,
)
from conversations.freed_memory import note_freed
from llm.wire.items import Event
from llm.wire.response import TERMINAL

__all__ = [
    "KEEP",
    "MOST",
    "MOST_BYTES",
    "WRITE",
    "Entries",
    "Entry",
    "EventLog",
    "Fenced",
    "Form",
    "Journal",
    "MemoryLog",
    "Position",
    "TurnLog",
    "Way",
    "Write",
    "encoded",
    "entries_after",
    "portions",
    "reset",
    "told_before",
]

MOST = 500  # entries in one batch for a subscriber ...
MOST_BYTES = 256 * 1024  # ... unless one entry is larger
RESET = "parley:step.reset"
LARGE = 1024 * 1024  # bytes; a larger log is not retained when its turn is over ...
UNREAD = 10.0  # ... except for its subscribers, for so many seconds ...
RETAINED = 64 * 1024 * 1024  # ... and so many bytes of all such logs
KEEP = 60.0  # seconds for which the log of a finished turn is retained

Form = Callable[[Entry], bytes]
#: Writes whole WebSocket frames to a connection. Returns False, and has written
#: nothing, where the connection takes no more at the moment, or is closed.
Write = Callable[[bytes], bool]
#: The ASGI extension that is one, under uvicorn (`project/direct_write.py`).
WRITE = "parley.write"


class Way(NamedTuple):
    """Writes entries straight to a connection, without the subscriber's task: the
    encoder, which must be the same function for all subscribers of an endpoint, and the
    connection's write function."""

    form: Form
    write: Write

    def take(self, entries: Sequence[Entry]) -> bool:
        return self.write(b"".join(map(self.form, entries)))


class Fenced(Exception):
    """Another run has claimed the turn; the writes of this one have no effect."""


class Journal(Protocol):
    """Appends the events of a run to the event log."""

    def append(
        self,
        epoch: int,
        events: Iterable[Event],
        told: Mapping[int, Position] | None = None,
    ) -> None:
        """`earlier_positions`: by output index, where an earlier epoch has published an
        item as done.

        Raises StaleEpoch if a later epoch has begun.
        """


class EventLog(Protocol):
    """The events of all turns: runs append to it, subscribers read from it."""

    def journal(self, turn_id: str, fenced: Callable[[], None]) -> Journal:
        """The publisher for a run of this process. Calls `on_fenced` when another run
        has claimed the turn."""

    def close(self, turn_id: str) -> None:
        """The run has ended, in order or not."""

    async def follow(self, turn_id: str) -> TurnLog:
        """Subscribe to a turn, and return its log as far as it is known here. Call
        `unsubscribe` once for each call."""

    def leave(self, log: TurnLog) -> None: ...

    def get(self, turn_id: str) -> TurnLog | None:
        """The turn's log, if it is known here already."""

    def drop(self, turn_id: str) -> None:
        """Make subscribers read the turn from its rows from now on."""

    def wake_all(self) -> None: ...


class _Listener:
    """A subscriber at the end of a log, to whose connection entries are written as they
    are appended."""

    __slots__ = ("form", "last", "woken", "write")

    def __init__(self, way: Way) -> None:
        self.form, self.write = way
        self.last: Entry | None = None  # the last one written
        self.woken = asyncio.get_running_loop().create_future()


class TurnLog:
    """The events of one turn: appended by one run, read by any number of
    subscribers."""

    __slots__ = (
        "_listening",
        "_waiting",
        "ended",
        "entries",
        "epoch",
        "followers",
        "is_over",
        "stand_in",
        "turn_id",
    )

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.epoch = 0
        self.entries = Entries(turn_id)
        self.ended = False
        self.is_over = False  # the rows say so, whatever the entries say
        #: Batches made from rows, for subscribers at the end of `entries` while the log
        #: itself cannot be read. A subscriber that has received a whole batch may
        #: continue with the next.
        self.stand_in: Sequence[Sequence[Entry]] = ()
        self.followers = 0
        self._waiting: Sequence[asyncio.Future[None]] = ()
        self._listening: Sequence[_Listener] = ()

    def append(
        self,
        epoch: int,
        events: Iterable[Event],
        told: Mapping[int, Position] | None = None,
    ) -> None:
        """See `Publisher`."""
        if epoch < self.epoch:
            raise Fenced
        if epoch > self.epoch:
            self.wake()
            self.begin(epoch)
        new: list[Entry] = []
        for event in events:
            place = (epoch, event["sequence_number"])
            told_at = told_before(event, told) if told is not None else None
            new.append(entry_of(self.turn_id, place, event, told_at))
            if event["type"] in TERMINAL:
                self.ended = True
        self.entries.extend(new)
        self.tell(new)

    def begin(self, epoch: int) -> None:
        """Start a new epoch, and drop the entries of earlier ones."""
        self.epoch, self.ended = epoch, False
        self.entries = Entries(self.turn_id, epoch)

    def tell(self, new: Sequence[Entry]) -> None:
        """Give the last entries to the subscribers. The terminal event is left to their
        tasks, which end with it."""
        if self.ended:
            self.wake()
            return
        if self._waiting:
            self._wake_waiting()
        if not (self._listening and new):
            return
        last = new[-1]
        told: dict[Form, bytes] = {}
        refused: list[_Listener] = []
        for listener in self._listening:
            form = listener.form
            if (data := told.get(form)) is None:
                data = form(last) if len(new) == 1 else b"".join(map(form, new))
                told[form] = data
            if listener.write(data):
                listener.last = last
            else:
                refused.append(listener)
        for listener in refused:
            self._dismiss(listener)

    def wake(self) -> None:
        self._wake_waiting()
        listening, self._listening = self._listening, ()
        for listener in listening:
            self._dismiss(listener)

    def _wake_waiting(self) -> None:
        waiting, self._waiting = self._waiting, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _dismiss(self, listener: _Listener) -> None:
        """Let the subscriber's own task continue."""
        self._listening = tuple(x for x in self._listening if x is not listener)
        if not listener.woken.done():
            listener.woken.set_result(None)

    async def changed(self) -> None:
        """Returns at the next append or wake."""
        future = asyncio.get_running_loop().create_future()
        self._waiting = (*self._waiting, future)
        await future

    async def listen(self, way: Way) -> Entry | None:
        """Have appended entries written through the sink, until it accepts no more or
        the turn ends. Returns the last entry that was written."""
        listener = _Listener(way)
        self._listening = (*self._listening, listener)
        try:
            await listener.woken
        finally:
            self._dismiss(listener)
        return listener.last


def told_before(event: Event, told: Mapping[int, Position]) -> Position | None:
    """The position at which an earlier epoch has published the same event."""
    if event["type"] in ("response.created", "response.in_progress"):
        return Position(1, 1)
    return told.get(event.get("output_index", -1))


class MemoryLog:
    """The event log of a single process."""

    def __init__(self) -> None:
        self._logs: dict[str, TurnLog] = {}
        self._running: set[str] = set()
        self._large: list[TurnLog] = []  # logs of finished turns, the oldest first

    def journal(self, turn_id: str, fenced: Callable[[], None]) -> TurnLog:
        self._running.add(turn_id)
        return self._open(turn_id)

    def close(self, turn_id: str) -> None:
        self._running.discard(turn_id)
        log = self._logs.get(turn_id)
        if log is not None and log.ended and log.entries.size > LARGE:
            self._retain(log)
        else:
            self._expire(turn_id)

    def _retain(self, log: TurnLog) -> None:
        """Retain a large log of a finished turn for a moment. Subscribers then continue
        from the rows: a client that does not read may stay connected for hours, and
        would hold the whole log."""
        self._large.append(log)
        pause = UNREAD if log.followers else 0.0
        asyncio.get_running_loop().call_later(pause, self._release, log)
        while len(self._large) > 1 and sum(_sizes(self._large)) > RETAINED:
            self._release(self._large[0])

    def _release(self, log: TurnLog) -> None:
        if log not in self._large:
            return
        self._large.remove(log)
        if self._logs.get(log.turn_id) is log and log.ended:
            del self._logs[log.turn_id]
            note_freed(log.entries.size)
            log.entries = Entries(log.turn_id, log.epoch)
            log.is_over = True
            log.wake()

    async def follow(self, turn_id: str) -> TurnLog:
        log = self._open(turn_id)
        log.followers += 1
        return log

    def leave(self, log: TurnLog) -> None:
        log.followers -= 1
        if not log.followers:
            self._expire(log.turn_id)

    def get(self, turn_id: str) -> TurnLog | None:
        return self._logs.get(turn_id)

    def drop(self, turn_id: str) -> None:
        self._logs.pop(turn_id, None)

    def wake_all(self) -> None:
        for log in self._logs.values():
            log.wake()

    def _open(self, turn_id: str) -> TurnLog:
        if (log := self._logs.get(turn_id)) is None:
            log = self._logs[turn_id] = TurnLog(turn_id)
        return log

    def _expire(self, turn_id: str) -> None:
        """Drop the turn's events after a while; its rows hold them."""
        asyncio.get_running_loop().call_later(KEEP, self._drop_unused, turn_id)

    def _drop_unused(self, turn_id: str) -> None:
        log = self._logs.get(turn_id)
        if log and not log.followers and turn_id not in self._running:
            self.drop(turn_id)


def _sizes(logs: Iterable[TurnLog]) -> Iterator[int]:
    return (log.entries.size for log in logs)


def entries_after(
    entries: Sequence[Entry], after: Position | None, most: int = sys.maxsize
) -> list[Entry]:
    """The first `limit` entries that a subscriber at `after` has not received.

    A subscriber that comes from an earlier epoch first gets a reset, which drops what
    was not committed there.
    """
    if after is None:
        return list(entries[:most])
    epoch = entries[-1].epoch
    if after.epoch >= epoch:
        first = after.sequence + 1
        return list(entries[first : first + most]) if after.epoch == epoch else []
    fresh = [e for e in entries if e.told_at is None or e.told_at > after]
    if not fresh:
        return []  # the reset comes with the first new entry
    known = [e.event for e in entries if e.told_at and e.told_at <= after]
    seen = {event["output_index"] for event in known if "output_index" in event}
    return [reset(entries[0].turn_id, after, len(seen)), *fresh[:most]]


def portions(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Split into batches, so that a slow subscriber holds little of what it has not
    read."""
    portion: list[Entry] = []
    size = 0
    for entry in entries:
        size += entry.size
        is_full = size > MOST_BYTES or len(portion) == MOST
        # A reset has the subscriber's own position, so it stays in one batch with the
        # next entry.
        if is_full and portion and portion[-1].type != RESET:
            yield portion
            portion, size = [], entry.size
        portion.append(entry)
    if portion:
        yield portion


def reset(turn_id: str, after: Position, output_index: int) -> Entry:
    """An entry that makes a subscriber at `after` drop the items from an index on."""
    event = {
        "type": RESET,
        "sequence_number": after.sequence + 1,
        "output_index": output_index,
    }
    return Entry.of(turn_id, after, event)
