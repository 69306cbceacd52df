"""JSON from elsewhere, parsed only where that takes a bounded time. Pure.

A parser runs in one go, and nothing else runs meanwhile. Twenty megabytes that hold one
text are parsed in 25 ms, as many of "[[],[],[],…" in 3 s. So the values are counted
first, which is a matter of searches for single bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

#: Values, and names of members. The probabilities of a thousand tokens, with twenty
#: alternatives each, are 130,000.
MAX_VALUES = 250_000
#: Bytes that are counted in one go. A thread lets others run between two calls: a
#: megabyte of brackets holds them up for 20 ms.
_PIECE = 64 * 1024
_LEAST, _MOST = -(2**63), 2**64 - 1  # of the integers that orjson writes
_MAX_DIGITS = 20  # of those, with the sign
_NO_BACKSLASH = re.compile(rb"[^\\]")


class TooManyValues(orjson.JSONDecodeError):
    """JSON of more values than are parsed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it has more than {most:,} values", "", 0)


def loads(body: bytes) -> Any:
    """Raises orjson.JSONDecodeError, of which TooManyValues is one."""
    check_values(body)
    return orjson.loads(body)


def forgiving(text: str) -> Any:
    """JSON that orjson refuses for half of a surrogate pair, as a value orjson writes.

    Numbers beyond 64 bits become floats, as orjson reads them; NaN and infinities
    become null, as orjson writes them. Raises ValueError, also for too deep a value.
    """
    try:
        return json.loads(
            text, parse_constant=_null, parse_float=_float, parse_int=_integer
        )
    except RecursionError as exc:
        raise ValueError("It is nested too deeply.") from exc


def _null(constant: str) -> None:
    return None


def _float(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _integer(text: str) -> int | float | None:
    if len(text) <= _MAX_DIGITS and _LEAST <= (value := int(text)) <= _MOST:
        return value
    return _float(text)


def check_values(body: bytes, most: int = MAX_VALUES, piece: int = _PIECE) -> None:
    """Raises TooManyValues. What is no JSON at all may pass."""
    if len(body) <= most or sum(map(_values, _pieces(body, piece))) <= most:
        return  # even if none of what looks like a value stands in a text
    values, in_text = 0, False
    for each in _pieces(body, piece):
        parts = _without_escapes(each).split(b'"')
        values += sum(map(_values, parts[in_text::2]))
        in_text ^= len(parts) % 2 == 0
        if values > most:
            raise TooManyValues(most)


def _values(text: bytes) -> int:
    """One stands behind each of these, and one before them all."""
    return text.count(b",") + text.count(b":") + text.count(b"[") + text.count(b"{")


def _without_escapes(piece: bytes) -> bytes:
    """Without the quotes that end no text."""
    if b"\\" not in piece:
        return piece
    return piece.replace(b"\\\\", b"").replace(b'\\"', b"")


def _pieces(body: bytes, size: int) -> Iterator[bytes]:
    """All of it, cut where no escape is cut in two."""
    start = 0
    while start < len(body):
        cut = _NO_BACKSLASH.search(body, start + size)
        end = cut.end() if cut else len(body)
        yield body[start:end]
        start = end
