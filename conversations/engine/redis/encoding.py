"""The encoding of a turn's events in Redis. No IO.

A turn's log is the stream `parley:turn:<id>`. Each stream entry is a batch of events;
its id is the position of the first, `<epoch>-<sequence>`, so Redis itself refuses a
writer with an older epoch. A batch has one line per event: its type, the position at
which an earlier epoch has published the same (or `-`), and its JSON, which has no line
breaks. A large event is stored under a key of its own, and its line has `@` instead of
JSON. An empty batch says that the turn is too long, and that its rest must be read from
rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from conversations.engine.event_log import Entry, Position

LARGE = 256 * 1024  # bytes; a larger event is stored separately
CHUNK_SIZE = 1024 * 1024  # bytes of it that one command writes or reads
FIELD = b"e"
STORED_SEPARATELY = b"@"
UNFINISHED_EXPIRY = 24 * 3600  # seconds after which an open turn expires in Redis
FINISHED_EXPIRY = 300  # seconds for a finished one; it is read from rows later


class Batch(NamedTuple):
    """Events of one epoch, the first with this number."""

    first: int
    data: bytes


def stream_key(turn_id: str) -> str:
    return f"parley:turn:{turn_id}"


def large_event_key(turn_id: str, position: Position) -> str:
    """The key of an event that is stored separately."""
    return f"parley:turn:{turn_id}:{position}"


def encode_line(type: str, earlier_position: Position | None, data: bytes) -> bytes:
    earlier = b"-" if earlier_position is None else str(earlier_position).encode()
    return b"%b %b %b" % (type.encode(), earlier, data)


def pack(first: int, lines: list[bytes]) -> Batch:
    return Batch(first, b"\n".join(lines))


def unpack(turn_id: str, start: Position, data: bytes) -> Iterator[Entry]:
    """Yield the entries of a batch. One that is stored separately has
    `STORED_SEPARATELY` as its data."""
    epoch, first = start
    for number, line in enumerate(data.split(b"\n")):
        type, earlier, json = line.split(b" ", 2)
        position = Position(epoch, first + number)
        earlier_position = None if earlier == b"-" else Position.parse(earlier.decode())
        yield Entry(turn_id, position, type.decode(), json, earlier_position)
