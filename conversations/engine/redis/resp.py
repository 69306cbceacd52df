"""Encoder and decoder of the Redis protocol. No IO.

redis-py awaits each line of a reply with a timer of its own, which for a delta costs
more than all other work on it.

Source: https://redis.io/docs/latest/develop/reference/protocol-spec/ (RESP2)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis.exceptions import ResponseError

Command = Sequence[bytes | str | int]
#: bytes, int, None, a list of replies, or a ResponseError.
Reply = Any


def pack(commands: Iterable[Command]) -> bytes:
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for word in command:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Replies:
    """Bytes in, replies out. A chunk may end anywhere."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0  # bytes in `_parts`
        self._needed = 0  # bytes, before decoding can continue
        self._open: list[tuple[list[Reply], int]] = []  # open arrays and their lengths

    def feed(self, chunk: bytes) -> list[Reply]:
        self._parts.append(chunk)
        self._size += len(chunk)
        if self._size < self._needed:
            return []
        data, at = b"".join(self._parts), 0
        found: list[Reply] = []
        self._needed = 0
        while (end := data.find(b"\r\n", at)) >= 0:
            mark, head, after = data[at : at + 1], data[at + 1 : end], end + 2
            value: Reply = head
            if mark == b"$" and (size := int(head)) >= 0:
                end = after + size
                if len(data) < end + 2:
                    self._needed = end + 2 - at
                    break
                value, after = data[after:end], end + 2
            elif mark == b"*" and int(head) > 0:
                self._open.append(([], int(head)))
                at = after
                continue
            elif mark != b"+":
                value = _short(mark, head)
            at = after
            self._close(value, found)
        self._parts = [data[at:]]
        self._size = len(data) - at
        return found

    def _close(self, value: Reply, found: list[Reply]) -> None:
        """Append the value to its array, and complete all arrays that end with it."""
        while self._open:
            array, size = self._open[-1]
            array.append(value)
            if len(array) < size:
                return
            self._open.pop()
            value = array
        found.append(value)


def _short(mark: bytes, head: bytes) -> Reply:
    match mark:
        case b":":
            return int(head)
        case b"-":
            return ResponseError(head.decode())
        case b"$" | b"*":  # -1 is null
            return [] if head == b"0" else None
    raise ResponseError(f"Redis answered {mark + head!r}.")
