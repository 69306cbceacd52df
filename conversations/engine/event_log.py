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
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from conversations.engine.packed_events import (
    Entries,
    Entry,
    Position,
    encode_event,
    entry_of,
)
from conversations.engine.process.malloc_trim import schedule_trim
from llm.wire.items import Event
from llm.wire.response_builder import TERMINAL

__all__ = [
    "MAX_BYTES",
    "MAX_ENTRIES",
    "RETENTION",
    "WRITE_KEY",
    "DirectSink",
    "Encode",
    "Entries",
    "Entry",
    "EventLog",
    "MemoryLog",
    "Position",
    "Publisher",
    "StaleEpoch",
    "TurnDeleted",
    "TurnLog",
    "Write",
    "encode_event",
    "entries_after",
    "find_earlier_position",
    "portions",
    "reset_entry",
]

MAX_ENTRIES = 500  # entries in one batch for a subscriber ...
MAX_BYTES = 256 * 1024  # ... unless one entry is larger
RESET = "parley:step.reset"
LARGE = 1024 * 1024  # bytes; a larger log is not retained when its turn is over ...
UNREAD_RETENTION = 10.0  # ... except for its subscribers, for so many seconds ...
MAX_RETAINED = 64 * 1024 * 1024  # ... and so many bytes of all such logs
RETENTION = 60.0  # seconds for which the log of a finished turn is retained

Encode = Callable[[Entry], bytes]
#: Writes whole WebSocket frames to a connection. Returns False, and has written
#: nothing, if the connection takes no more at the moment or is closed.
Write = Callable[[bytes], bool]
#: The key of a `Write` in the `state` of the ASGI scope, under uvicorn
#: (`project/server/direct_write.py`).
WRITE_KEY = "parley.write"


class DirectSink(NamedTuple):
    """Writes entries straight to a connection, without the subscriber's task: the
    encoder, which must be the same function for all subscribers of an endpoint, and the
    connection's write function."""

    encode: Encode
    write: Write

    def write_entries(self, entries: Sequence[Entry]) -> bool:
        return self.write(b"".join(map(self.encode, entries)))


class StaleEpoch(Exception):
    """Another run has claimed the turn; the writes of this one have no effect."""


class TurnDeleted(Exception):
    """This turn has been deleted."""


class Publisher(Protocol):
    """Appends the events of a run to the event log."""

    def append(
        self,
        epoch: int,
        events: Iterable[Event],
        earlier_positions: Mapping[int, Position] | None = None,
    ) -> None:
        """`earlier_positions`: by output index, where an earlier epoch has published an
        item as done.

        Raises StaleEpoch if a later epoch has begun.
        """


class OpenLog(Protocol):
    """A log that a run writes."""

    began_at: float  # time.monotonic()


class EventLog(Protocol):
    """The events of all turns: runs append to it, subscribers read from it."""

    def open_publisher(self, turn_id: str, on_fenced: Callable[[], None]) -> Publisher:
        """The publisher for a run of this process. Calls `on_fenced` when another run
        has claimed the turn."""

    def close(self, turn_id: str) -> None:
        """The run has ended, in order or not."""

    async def subscribe(self, turn_id: str) -> TurnLog:
        """Subscribe to a turn, and return its log as far as it is known here. Call
        `unsubscribe` once for each call."""

    def unsubscribe(self, log: TurnLog) -> None: ...

    def get(self, turn_id: str) -> TurnLog | None:
        """The turn's log, if it is known here already."""

    def drop(self, turn_id: str) -> None:
        """Make subscribers read the turn from its rows from now on."""

    def active_logs(self) -> Sequence[TurnLog]:
        """The logs of turns that are not over and have subscribers."""

    def wake_all(self) -> None: ...

    def list_open(self) -> Sequence[OpenLog]:
        """The logs here of turns that have not ended. Any thread may call it."""


class _DirectSubscriber:
    """A subscriber at the end of a log, to whose connection entries are written as they
    are appended."""

    __slots__ = ("encode", "last", "woken", "write")

    def __init__(self, sink: DirectSink) -> None:
        self.encode, self.write = sink
        self.last: Entry | None = None  # the last one written
        self.woken = asyncio.get_running_loop().create_future()


class TurnLog:
    """The events of one turn: appended by one run, read by any number of
    subscribers."""

    __slots__ = (
        "_direct_subscribers",
        "_waiting",
        "began_at",
        "ended",
        "entries",
        "epoch",
        "fallback",
        "is_over",
        "subscriber_count",
        "turn_id",
    )

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self.began_at = time.monotonic()
        self.epoch = 0
        self.entries = Entries(turn_id)
        self.ended = False
        self.is_over = False  # the rows say so, whatever the entries say
        #: Batches made from rows, for subscribers at the end of `entries` while the log
        #: itself cannot be read. A subscriber that has received a whole batch may
        #: continue with the next.
        self.fallback: Sequence[Sequence[Entry]] = ()
        self.subscriber_count = 0
        self._waiting: Sequence[asyncio.Future[None]] = ()
        self._direct_subscribers: Sequence[_DirectSubscriber] = ()

    def append(
        self,
        epoch: int,
        events: Iterable[Event],
        earlier_positions: Mapping[int, Position] | None = None,
    ) -> None:
        """See `Publisher`."""
        if epoch < self.epoch:
            raise StaleEpoch
        if epoch > self.epoch:
            self.wake()
            self.begin(epoch)
        new: list[Entry] = []
        for event in events:
            position = (epoch, event["sequence_number"])
            earlier = (
                find_earlier_position(event, earlier_positions)
                if earlier_positions is not None
                else None
            )
            new.append(entry_of(self.turn_id, position, event, earlier))
            if event["type"] in TERMINAL:
                self.ended = True
        self.entries.extend(new)
        self.publish(new)

    def begin(self, epoch: int) -> None:
        """Start a new epoch, and drop the entries of earlier ones."""
        self.epoch, self.ended = epoch, False
        self.entries = Entries(self.turn_id, epoch)

    def publish(self, new: Sequence[Entry]) -> None:
        """Give the last entries to the subscribers. The terminal event is left to their
        tasks, which end with it."""
        if self.ended:
            self.wake()
            return
        if self._waiting:
            self._wake_waiting()
        if not (self._direct_subscribers and new):
            return
        last = new[-1]
        data_by_encoder: dict[Encode, bytes] = {}
        refused: list[_DirectSubscriber] = []
        for subscriber in self._direct_subscribers:
            encode = subscriber.encode
            if (data := data_by_encoder.get(encode)) is None:
                data = encode(last) if len(new) == 1 else b"".join(map(encode, new))
                data_by_encoder[encode] = data
            if subscriber.write(data):
                subscriber.last = last
            else:
                refused.append(subscriber)
        for subscriber in refused:
            self._dismiss(subscriber)

    def wake(self) -> None:
        self._wake_waiting()
        subscribers, self._direct_subscribers = self._direct_subscribers, ()
        for subscriber in subscribers:
            self._dismiss(subscriber)

    def _wake_waiting(self) -> None:
        waiting, self._waiting = self._waiting, ()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _dismiss(self, subscriber: _DirectSubscriber) -> None:
        """Let the subscriber's own task continue."""
        self._direct_subscribers = tuple(
            x for x in self._direct_subscribers if x is not subscriber
        )
        if not subscriber.woken.done():
            subscriber.woken.set_result(None)

    async def wait_for_change(self) -> None:
        """Returns at the next append or wake."""
        future = asyncio.get_running_loop().create_future()
        self._waiting = (*self._waiting, future)
        await future

    async def write_directly(self, sink: DirectSink) -> Entry | None:
        """Have appended entries written through the sink, until it accepts no more or
        the turn ends. Returns the last entry that was written."""
        subscriber = _DirectSubscriber(sink)
        self._direct_subscribers = (*self._direct_subscribers, subscriber)
        try:
            await subscriber.woken
        finally:
            self._dismiss(subscriber)
        return subscriber.last


def find_earlier_position(
    event: Event, earlier_positions: Mapping[int, Position]
) -> Position | None:
    """The position at which an earlier epoch has published the same event."""
    if event["type"] in ("response.created", "response.in_progress"):
        return Position(1, 1)
    return earlier_positions.get(event.get("output_index", -1))


class MemoryLog:
    """The event log of a single process."""

    def __init__(self) -> None:
        self._logs: dict[str, TurnLog] = {}
        self._running: set[str] = set()
        self._large: list[TurnLog] = []  # logs of finished turns, the oldest first

    def open_publisher(self, turn_id: str, on_fenced: Callable[[], None]) -> TurnLog:
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
        pause = UNREAD_RETENTION if log.subscriber_count else 0.0
        asyncio.get_running_loop().call_later(pause, self._release, log)
        while len(self._large) > 1 and sum(_sizes(self._large)) > MAX_RETAINED:
            self._release(self._large[0])

    def _release(self, log: TurnLog) -> None:
        if log not in self._large:
            return
        self._large.remove(log)
        if self._logs.get(log.turn_id) is log and log.ended:
            del self._logs[log.turn_id]
            schedule_trim(log.entries.size)
            log.entries = Entries(log.turn_id, log.epoch)
            log.is_over = True
            log.wake()

    async def subscribe(self, turn_id: str) -> TurnLog:
        log = self._open(turn_id)
        log.subscriber_count += 1
        return log

    def unsubscribe(self, log: TurnLog) -> None:
        log.subscriber_count -= 1
        if not log.subscriber_count:
            self._expire(log.turn_id)

    def get(self, turn_id: str) -> TurnLog | None:
        return self._logs.get(turn_id)

    def drop(self, turn_id: str) -> None:
        self._logs.pop(turn_id, None)

    def active_logs(self) -> list[TurnLog]:
        logs = self._logs.values()
        return [log for log in logs if log.subscriber_count and not log.ended]

    def wake_all(self) -> None:
        for log in self._logs.values():
            log.wake()

    def list_open(self) -> list[TurnLog]:
        return [log for log in list(self._logs.values()) if not log.ended]

    def _open(self, turn_id: str) -> TurnLog:
        if (log := self._logs.get(turn_id)) is None:
            log = self._logs[turn_id] = TurnLog(turn_id)
        return log

    def _expire(self, turn_id: str) -> None:
        """Drop the turn's events after a while; its rows hold them."""
        asyncio.get_running_loop().call_later(RETENTION, self._drop_unused, turn_id)

    def _drop_unused(self, turn_id: str) -> None:
        log = self._logs.get(turn_id)
        if log and not log.subscriber_count and turn_id not in self._running:
            self.drop(turn_id)


def _sizes(logs: Iterable[TurnLog]) -> Iterator[int]:
    return (log.entries.size for log in logs)


def entries_after(
    entries: Sequence[Entry], after: Position | None, limit: int = sys.maxsize
) -> list[Entry]:
    """The first `limit` entries that a subscriber at `after` has not received.

    A subscriber that comes from an earlier epoch first gets a reset, which drops what
    it has received there and was not committed.
    """
    if after is None:
        return list(entries[:limit])
    epoch = entries[-1].epoch
    if after.epoch >= epoch:
        first = after.sequence + 1
        return list(entries[first : first + limit]) if after.epoch == epoch else []
    fresh = [entry for entry in entries if not _is_known(entry, after)]
    if not fresh:
        return []  # the reset comes with the first new entry
    known = [entry.event for entry in entries if _is_known(entry, after)]
    seen = {event["output_index"] for event in known if "output_index" in event}
    return [reset_entry(entries[0].turn_id, after, len(seen)), *fresh[:limit]]


def _is_known(entry: Entry, after: Position) -> bool:
    """Whether a subscriber at `after`, in an earlier epoch, has received this event.

    Each epoch first publishes what earlier epochs have committed, as the same events.
    So a subscriber whose position is among these has received as many of them.
    """
    earlier = entry.earlier_position
    if earlier is None or earlier.epoch >= after.epoch:
        return earlier is not None and earlier <= after
    return entry.sequence <= after.sequence


def portions(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Split into batches, so that a slow subscriber holds little of what it has not
    read."""
    portion: list[Entry] = []
    size = 0
    for entry in entries:
        size += entry.size
        is_full = size > MAX_BYTES or len(portion) == MAX_ENTRIES
        # A reset has the subscriber's own position, so it stays in one batch with the
        # next entry.
        if is_full and portion and portion[-1].type != RESET:
            yield portion
            portion, size = [], entry.size
        portion.append(entry)
    if portion:
        yield portion


def reset_entry(turn_id: str, after: Position, output_index: int) -> Entry:
    """An entry that makes a subscriber at `after` drop the items from an index on."""
    event = {
        "type": RESET,
        "sequence_number": after.sequence + 1,
        "output_index": output_index,
    }
    return Entry.of(turn_id, after, event)
