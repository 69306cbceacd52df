"""Batches of events, as processes store them for one another. No IO.

A batch has one line per event: its type, the position at which an earlier epoch has
published the same (or `-`), and its JSON, which has no line breaks. An event that is
stored separately has `@` instead of JSON. An empty batch says that the turn is too
long, and that its rest must be read from rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from conversations.engine.event_log import Entry, Position

STORED_SEPARATELY = b"@"


class Batch(NamedTuple):
    """Events of one epoch, the first with this number."""

    first: int
    data: bytes


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
