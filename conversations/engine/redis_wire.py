"""How a turn's events lie in Redis. No IO.

A turn's log is the stream `parley:turn:<id>`. An entry of it is a batch of events that
were said together; its id is the position of the first, `<epoch>-<sequence>`, so Redis
itself refuses whoever comes with an older epoch. The batch is one line an event: its
type, where an earlier epoch told the same (or `-`), and its JSON, which has no line
breaks. A large event stands under a key of its own, and its line holds `@` instead.
An empty batch says that the turn is too long to be told here to its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from conversations.engine.log import Entry, Position

LARGE = 256 * 1024  # bytes of an event that is kept by itself
PIECE = 1024 * 1024  # bytes of it that are written or read at once
FIELD = b"e"
ELSEWHERE = b"@"


class Batch(NamedTuple):
    """Some events of one epoch, the first with this number."""

    first: int
    data: bytes


def stream_of(turn_id: str) -> str:
    return f"parley:turn:{turn_id}"


def large_of(turn_id: str, place: Position) -> str:
    """The key of an event that is kept by itself."""
    return f"parley:turn:{turn_id}:{place}"


def line_of(type: str, told_at: Position | None, data: bytes) -> bytes:
    told = b"-" if told_at is None else str(told_at).encode()
    return b"%b %b %b" % (type.encode(), told, data)


def pack(first: int, lines: list[bytes]) -> Batch:
    return Batch(first, b"\n".join(lines))


def unpack(turn_id: str, start: Position, data: bytes) -> Iterator[Entry]:
    """The events of a batch. One that is kept by itself has `ELSEWHERE` for data."""
    epoch, first = start
    for number, line in enumerate(data.split(b"\n")):
        type, told, json = line.split(b" ", 2)
        place = Position(epoch, first + number)
        told_at = None if told == b"-" else Position.parse(told.decode())
        yield Entry(turn_id, place, type.decode(), json, told_at)
