"""What has been said in the turns of this process, for whoever follows them.

A log holds the events of a turn's newest epoch, from its first: an event's place in the
list is its sequence number. Its position, `<epoch>-<sequence>`, orders it among all
events of the turn. Followers read the list, so a slow one holds nobody up and a late
one misses nothing; the events of a turn that is over are kept for a while and then made
from rows.
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

MOST = 500  # entries that a follower is handed at once ...
MOST_BYTES = 256 * 1024  # ... unless one is longer; who does not read holds no more
RESET = "parley:step.reset"
LARGE = 1024 * 1024  # bytes of a log that is not kept when its turn is over ...
UNREAD = 10.0  # ... but for those who read it, so many seconds ...
RETAINED = 64 * 1024 * 1024  # ... and so many bytes of all such logs
KEEP = 60.0  # seconds a turn that is over can be followed without its rows

Form = Callable[[Entry], bytes]
#: Writes whole WebSocket frames to a connection. Returns False, and has written
#: nothing, where the connection takes no more at the moment, or is closed.
Write = Callable[[bytes], bool]
#: The ASGI extension that is one, under uvicorn (`project/direct_write.py`).
WRITE = "parley.write"


class Way(NamedTuple):
    """How a follower is told at once, without its task: in which form, the same
    function for all followers of a door, and who writes that to its connection."""

    form: Form
    write: Write

    def take(self, entries: Sequence[Entry]) -> bool:
        return self.write(b"".join(map(self.form, entries)))


class Fenced(Exception):
    """Another run has taken the turn over; nothing of this one counts any more."""


class Journal(Protocol):
    """What a run tells its events to."""

    def append(
        self,
        epoch: int,
        events: Iterable[Event],
        told: Mapping[int, Position] | None = None,
    ) -> None:
        """`told`: by output index, where an earlier epoch told an item done.

        Raises Fenced where a later epoch has begun.
        """


class EventLog(Protocol):
    """What is said in all turns: runs write it, followers read it."""

    def journal(self, turn_id: str, fenced: Callable[[], None]) -> Journal:
        """For a run of this process. `fenced` is called when another run is found to
        have the turn."""

    def close(self, turn_id: str) -> None:
        """The run is over, be it well or not."""

    async def follow(self, turn_id: str) -> TurnLog:
        """The turn's events as far as they are known here; `leave` it once."""

    def leave(self, log: TurnLog) -> None: ...

    def get(self, turn_id: str) -> TurnLog | None:
        """What is known here already."""

    def drop(self, turn_id: str) -> None:
        """Tell the turn from its rows from now on."""

    def wake_all(self) -> None: ...


class _Listener:
    """A follower at the end of a log, told at once what comes."""

    __slots__ = ("form", "last", "woken", "write")

    def __init__(self, way: Way) -> None:
        self.form, self.write = way
        self.last: Entry | None = None  # that it was told
        self.woken = asyncio.get_running_loop().create_future()


class TurnLog:
    """One turn's events. Appended by one run, read by any number of followers."""

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
        self.is_over = False  # by its rows, whatever the entries say
        #: Made from rows, for followers at the end of `entries` while the log itself
        #: cannot be read. Who was told a batch of it whole may go on with the next.
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
        """See `Journal`."""
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
        """What was said in earlier ones is forgotten."""
        self.epoch, self.ended = epoch, False
        self.entries = Entries(self.turn_id, epoch)

    def tell(self, new: Sequence[Entry]) -> None:
        """Those are the last of `entries`. The end is for tasks to tell, which then end
        as well."""
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
        """From now on its task tells it."""
        self._listening = tuple(x for x in self._listening if x is not listener)
        if not listener.woken.done():
            listener.woken.set_result(None)

    async def changed(self) -> None:
        """Returns at the next append or wake."""
        future = asyncio.get_running_loop().create_future()
        self._waiting = (*self._waiting, future)
        await future

    async def listen(self, way: Way) -> Entry | None:
        """Has what is appended from now on told in this way, as long as that does, and
        up to the end. The last entry that was."""
        listener = _Listener(way)
        self._listening = (*self._listening, listener)
        try:
            await listener.woken
        finally:
            self._dismiss(listener)
        return listener.last


def told_before(event: Event, told: Mapping[int, Position]) -> Position | None:
    """Where an earlier epoch told the same."""
    if event["type"] in ("response.created", "response.in_progress"):
        return Position(1, 1)
    return told.get(event.get("output_index", -1))


class MemoryLog:
    """The logs of this process, which is the only one."""

    def __init__(self) -> None:
        self._logs: dict[str, TurnLog] = {}
        self._running: set[str] = set()
        self._large: list[TurnLog] = []  # that are over, the oldest first

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
        """A large log that is over, for a moment. Whoever reads on then is told by the
        rows: a client that does not read may stay for hours, and would hold all of
        it."""
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
    """What a follower at `after` has not been told yet; the first `most` of it.

    One who comes from an earlier epoch is told to drop what was not committed there.
    """
    if after is None:
        return list(entries[:most])
    epoch = entries[-1].epoch
    if after.epoch >= epoch:
        first = after.sequence + 1
        return list(entries[first : first + most]) if after.epoch == epoch else []
    fresh = [e for e in entries if e.told_at is None or e.told_at > after]
    if not fresh:
        return []  # the reset comes with the first that is new
    known = [e.event for e in entries if e.told_at and e.told_at <= after]
    seen = {event["output_index"] for event in known if "output_index" in event}
    return [reset(entries[0].turn_id, after, len(seen)), *fresh[:most]]


def portions(entries: list[Entry]) -> Iterator[list[Entry]]:
    """One after another, so that who does not read holds little of what is to come."""
    portion: list[Entry] = []
    size = 0
    for entry in entries:
        size += entry.size
        is_full = size > MOST_BYTES or len(portion) == MOST
        # A reset stands where the follower is, and goes with what comes next.
        if is_full and portion and portion[-1].type != RESET:
            yield portion
            portion, size = [], entry.size
        portion.append(entry)
    if portion:
        yield portion


def reset(turn_id: str, after: Position, output_index: int) -> Entry:
    """Tells a follower at `after` to drop the items from an index on."""
    event = {
        "type": RESET,
        "sequence_number": after.sequence + 1,
        "output_index": output_index,
    }
    return Entry.of(turn_id, after, event)
