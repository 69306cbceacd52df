"""Entries of the event log, and their packed storage in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, overload

import orjson

from llm.wire import sse, websocket_frame
from llm.wire.items import Event
from llm.wire.response_builder import TERMINAL

_UNIQUE_PREFIX = 128  # bytes at the start of a response, with its own id and time
#: Events that repeat the request, with the definitions of its tools.
_BEGINNINGS = frozenset({"response.created", "response.in_progress"})
#: Events that repeat the response, but on a WebSocket not the definitions of its tools.
_REPETITIONS = TERMINAL | {"response.in_progress"}
_STRIDE = 256  # pieces of text from one noted offset to the next
LARGE_EVENT = 256 * 1024  # bytes; a larger event is encoded for each subscriber
_DELTA = b',"delta":'
#: What follows the text in a delta event.
_SUFFIXES = (b',"logprobs":[]}', b"}")


class Position(NamedTuple):
    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Raises ValueError for anything but `<epoch>-<sequence>`."""
        epoch, dash, sequence = text.partition("-")
        is_numeric = epoch.isdecimal() and sequence.isdecimal() and text.isascii()
        if not (dash and is_numeric):
            raise ValueError(f"{text!r} is not a position such as '1-42'.")
        if len(text) > 30:
            raise ValueError("The position is too long.")
        return cls(int(epoch), int(sequence))


class Entry:
    """An event with its position.

    Only the event's bytes are stored: a log holds an entry for every word, thousands of
    them, and Python's garbage collector visits every container object.
    """

    __slots__ = ("data", "earlier_position", "epoch", "sequence", "turn_id", "type")

    def __init__(
        self,
        turn_id: str,
        position: tuple[int, int],
        type: str,
        data: bytes,
        earlier_position: Position | None = None,
    ) -> None:
        self.turn_id = turn_id
        self.epoch, self.sequence = position
        self.type = type
        self.data = data  # the event as JSON
        self.earlier_position = earlier_position  # of the same event

    @staticmethod
    def of(
        turn_id: str,
        position: tuple[int, int],
        event: Event,
        earlier_position: Position | None = None,
    ) -> Entry:
        return entry_of(turn_id, position, event, earlier_position)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entry):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.turn_id, self.epoch, self.sequence, self.data, self.earlier_position

    @property
    def size(self) -> int:
        """Bytes of `data`."""
        return len(self.data)

    @property
    def log_position(self) -> Position:
        return Position(self.epoch, self.sequence)

    @property
    def position(self) -> str:
        return f"{self.epoch}-{self.sequence}"

    @property
    def event(self) -> Event:
        event: Event = orjson.loads(self.data)
        return event

    @property
    def is_last(self) -> bool:
        return self.type in TERMINAL

    @property
    def frame(self) -> bytes:
        """The event as a Server-Sent Event."""
        return sse.encode({"type": self.type}, self.data, self.position)

    @property
    def ws(self) -> str:
        """The event as a WebSocket message, with its turn and position."""
        return (self._ws_data()[:-1] + self._address()).decode()

    def ws_frame(self) -> bytes:
        """The WebSocket message as bytes on the wire."""
        data, address = self._ws_data(), self._address()
        head = websocket_frame.text_head(len(data) - 1 + len(address))
        return b"".join((head, data[:-1], address))

    def _ws_data(self) -> bytes:
        """The event as JSON; the definitions of tools only in `response.created`."""
        if self.type not in _REPETITIONS:  # nearly all
            return self.data
        return encode_event(_without_tools(self.event))

    def _address(self) -> bytes:
        suffix = f',"turn":"{self.turn_id}","position":"{self.epoch}-{self.sequence}"}}'
        return suffix.encode()


class LargeEntry(Entry):
    """An event that is stored unencoded, and encoded for each subscriber.

    Four events at the end of an answer hold its whole text. As objects they share it;
    encoded, each would hold a copy for as long as a slow subscriber reads.
    """

    __slots__ = ("_event", "_size")

    def __init__(
        self,
        turn_id: str,
        position: tuple[int, int],
        event: Event,
        size: int,
        earlier_position: Position | None = None,
    ) -> None:
        self.turn_id = turn_id
        self.epoch, self.sequence = position
        self.type = event["type"]
        self.earlier_position = earlier_position
        self._event, self._size = event, size

    @property
    def size(self) -> int:
        return self._size

    @property
    def data(self) -> bytes:  # type: ignore[override]  # a slot of other entries
        return encode_event(self._event)

    @property
    def event(self) -> Event:
        return self._event


def _without_tools(event: Event) -> Event:
    if "response" not in event:
        return event
    response = {**event["response"]}
    response.pop("tools", None)
    return {**event, "response": response}


def entry_of(
    turn_id: str,
    position: tuple[int, int],
    event: Event,
    earlier_position: Position | None = None,
) -> Entry:
    data = encode_event(event)
    if len(data) > LARGE_EVENT:
        return LargeEntry(turn_id, position, event, len(data), earlier_position)
    return Entry(turn_id, position, event["type"], data, earlier_position)


def encode_event(event: Event) -> bytes:
    """The event as JSON. Copied, because orjson's result keeps the 4 KB buffer that it
    was written in."""
    return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)[:-1]


class Entries(Sequence[Entry]):
    """The entries of one epoch of a turn, indexed by sequence number.

    Nearly all events carry a piece of text and differ only in that and in their number.
    Only the pieces of these are stored, one after another; an `Entry` is created again
    for a late subscriber. The latest entries stay unpacked, for subscribers that keep
    up.
    """

    __slots__ = (
        "_delta_run",
        "_epoch",
        "_firsts",
        "_packed",
        "_recent",
        "_segments",
        "_turn_id",
        "size",
    )

    def __init__(self, turn_id: str = "", epoch: int = 0) -> None:
        self.size = 0  # bytes of all events before packing
        self._turn_id, self._epoch = turn_id, epoch
        self._segments: list[_SingleEvent | _DeltaRun | LargeEntry] = []
        self._firsts: list[int] = []  # sequence number of each segment's first event
        self._packed = 0  # number of events in the segments
        self._delta_run: _DeltaRun | None = None  # the last segment, if it can grow
        self._recent: list[Entry] = []

    def extend(self, entries: list[Entry]) -> None:
        """Append the events that come next."""
        if not entries:
            return
        self.size += sum(entry.size for entry in entries)
        for entry in self._recent:
            if self._delta_run is None or not self._delta_run.try_append(entry):
                self._pack(entry)
            self._packed += 1
        self._recent = entries

    def __len__(self) -> int:
        return self._packed + len(self._recent)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._between(0, len(self)))

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> list[Entry]: ...
    def __getitem__(self, index: int | slice) -> Entry | list[Entry]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._between(start, stop)[::step]
        index = index + len(self) if index < 0 else index
        if index >= self._packed:
            return self._recent[index - self._packed]
        if found := self._between(index, index + 1):
            return found[0]
        raise IndexError(index)

    def _between(self, start: int, stop: int) -> list[Entry]:
        if start >= self._packed:  # the usual case: a subscriber that keeps up
            return self._recent[start - self._packed : stop - self._packed]
        found: list[Entry] = []
        at = bisect_right(self._firsts, start) - 1
        while at < len(self._segments) and self._firsts[at] < stop:
            first, segment = self._firsts[at], self._segments[at]
            if isinstance(segment, LargeEntry):
                found += [segment] if first >= start else []
                at += 1
                continue
            for number, data in segment.events_from(first, start):
                if number >= stop:
                    break
                found.append(self._entry(number, segment, data))
            at += 1
        return found + self._recent[: max(stop - self._packed, 0)]

    def _entry(
        self, number: int, segment: _SingleEvent | _DeltaRun, data: bytes
    ) -> Entry:
        position = (self._epoch, number)
        return Entry(
            self._turn_id, position, segment.type, data, segment.earlier_position
        )

    def _pack(self, entry: Entry) -> None:
        self._delta_run = delta_run = _DeltaRun.begin_with(entry)
        last = self._segments[-1] if self._segments else None
        if delta_run is not None:
            self._segments.append(delta_run)
        elif isinstance(entry, LargeEntry):
            self._segments.append(entry)
        else:
            before = last if isinstance(last, _SingleEvent) else None
            self._segments.append(_SingleEvent(entry, before))
        self._firsts.append(self._packed)


@lru_cache(maxsize=32)
def _interned(data: bytes) -> bytes:
    """The same object for equal data: turns of a model begin alike."""
    return data


class _SingleEvent:
    """An event that is stored by itself."""

    __slots__ = ("_head", "_tail", "earlier_position", "type")

    def __init__(self, entry: Entry, before: _SingleEvent | None) -> None:
        self.type, self.earlier_position = entry.type, entry.earlier_position
        head = entry.data[len(_event_prefix(entry.type, entry.sequence)) :]
        self._tail = b""
        if entry.type in _BEGINNINGS:
            head, tail = head[:_UNIQUE_PREFIX], head[_UNIQUE_PREFIX:]
            self._tail = _interned(tail)
        # `created` and `in_progress` contain the same response.
        is_same = before is not None and before._head == head
        self._head: bytes = before._head if before and is_same else head

    def events_from(self, first: int, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield the event, which has number `first`, if that is at least `start`."""
        if first >= start:
            begins = _event_prefix(self.type, first)
            yield first, b"".join((begins, self._head, self._tail))


class _DeltaRun:
    """Consecutive delta events of one text."""

    __slots__ = (
        "_address",
        "_count",
        "_digits",
        "_end",
        "_offsets",
        "_prefix_length",
        "_text",
        "earlier_position",
        "type",
    )

    def __init__(self, entry: Entry, begins: int, address: bytes, end: bytes) -> None:
        self.type, self.earlier_position = entry.type, entry.earlier_position
        self._prefix_length = begins  # bytes up to the end of the number
        self._digits = 10 ** len(str(entry.sequence))  # the first longer number
        self._address = address  # the bytes between the number and the piece of text
        self._end = end
        self._text = bytearray()  # the pieces, each with a line end
        self._count = 0  # pieces
        #: Where in the text every `_STRIDE`-th piece begins, for late subscribers.
        self._offsets: list[int] = []

    @classmethod
    def begin_with(cls, entry: Entry) -> _DeltaRun | None:
        """None if the entry is not a delta event, or is a large one."""
        if isinstance(entry, LargeEntry):
            return None
        begins = len(_event_prefix(entry.type, entry.sequence))
        address, delta, _ = entry.data[begins:].partition(_DELTA)
        if not delta:
            return None
        end = next(end for end in _SUFFIXES if entry.data.endswith(end))
        delta_run = cls(entry, begins, address + delta, end)
        return delta_run if delta_run.try_append(entry) else None

    def try_append(self, entry: Entry) -> bool:
        """Append the entry if it continues this run of deltas. Returns whether it
        does."""
        if isinstance(entry, LargeEntry):
            return False
        if entry.sequence >= self._digits:
            self._digits *= 10
            self._prefix_length += 1
        data, begins, address = entry.data, self._prefix_length, self._address
        if (
            entry.type != self.type
            or entry.earlier_position != self.earlier_position
            or not data.startswith(address, begins)
            or not data.endswith(self._end)
            or b"\n" in data
        ):
            return False
        if self._count % _STRIDE == 0:
            self._offsets.append(len(self._text))
        self._text += data[begins + len(address) : -len(self._end)]
        self._text += b"\n"
        self._count += 1
        return True

    def events_from(self, first: int, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield the events from number `start` on; the first of all is `first`."""
        stride = max(start - first, 0) // _STRIDE
        number = first + stride * _STRIDE
        ends = [*self._offsets[stride + 1 :], len(self._text)]
        for begins, end in zip(self._offsets[stride:], ends, strict=True):
            for piece in self._text[begins : end - 1].split(b"\n"):
                if number >= start:
                    yield number, self._data(number, piece)
                number += 1

    def _data(self, number: int, piece: bytearray) -> bytes:
        begins = _event_prefix(self.type, number)
        return b"".join((begins, self._address, piece, self._end))


def _event_prefix(type: str, number: int) -> bytes:
    """The first bytes of every event as JSON."""
    return b'{"type":"%b","sequence_number":%d' % (type.encode(), number)
