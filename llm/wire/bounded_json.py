"""JSON parsing in bounded time, for input from outside. Pure.

A parser runs to its end without a pause and blocks everything else in its thread.
Twenty megabytes that hold one string are parsed in 25 ms, twenty megabytes of
"[[],[],[],…" take 3 s. Therefore the values are counted first, by searching for single
bytes, and input with too many values is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

#: Limit on values plus member names. The log probabilities of a thousand tokens, with
#: twenty alternatives each, are 130,000.
MAX_VALUES = 250_000
#: Bytes that are counted in one go. Between two pieces a thread can release the GIL: a
#: megabyte of brackets holds other threads up for 20 ms.
_PIECE = 64 * 1024
_LEAST, _MOST = -(2**63), 2**64 - 1  # the range of integers that orjson writes
_MAX_DIGITS = 20  # of such an integer, sign included
_LONG_NUMBER = re.compile(rb"[0-9]{19}")  # may be more than 64 bits
_LONG_NUMBER_IN_TEXT = re.compile(r"[0-9]{19,}")
_NO_BACKSLASH = re.compile(rb"[^\\]")


class TooManyValues(orjson.JSONDecodeError):
    """The JSON has more values than are parsed."""

    def __init__(self, most: int) -> None:
        super().__init__(f"it has more than {most:,} values", "", 0)


def loads(body: bytes) -> Any:
    """Parse `body`. Raises orjson.JSONDecodeError, of which TooManyValues is a
    subclass."""
    if len(body) > MAX_VALUES:  # each value takes a byte at least
        check_values(body)
    return orjson.loads(body)


def loads_exact(body: bytes) -> Any:
    """As `loads`, which rounds integers beyond 64 bits; here they stay what they are.

    orjson cannot write the result then; `pydantic_core.to_json` can.
    """
    value = loads(body)
    if _LONG_NUMBER.search(body) is None:
        return value
    try:
        return json.loads(body)
    except RecursionError:  # orjson reads deeper
        return value


def find_long_integer(text: str) -> str:
    """The first integer of valid JSON that is beyond 64 bits, so that orjson rounds it;
    "" if there is none."""
    if (number := _LONG_NUMBER_IN_TEXT.search(text)) is None:
        return ""
    found: list[str] = []

    def note(digits: str) -> None:
        if not isinstance(_integer(digits), int):
            found.append(digits)

    try:
        json.loads(text, parse_int=note)
    except RecursionError:
        return number[0]
    return found[0] if found else ""


def loads_lenient(text: str) -> Any:
    """Parse JSON that orjson refuses because it has half of a surrogate pair.

    The result can be written by orjson: numbers beyond 64 bits become floats, as orjson
    reads them, and NaN and infinities become null, as orjson writes them. Raises
    ValueError, also for a value that is nested too deeply.
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
    """Raises TooManyValues. Text that is not JSON at all may pass."""
    if len(body) <= most or sum(map(_values, _pieces(body, piece))) <= most:
        return  # few enough, even if every counted byte stands outside of strings
    values, in_text = 0, False
    for each in _pieces(body, piece):
        parts = _without_escapes(each).split(b'"')
        values += sum(map(_values, parts[in_text::2]))
        in_text ^= len(parts) % 2 == 0
        if values > most:
            raise TooManyValues(most)


def _values(text: bytes) -> int:
    """An upper bound on the values in `text`: each follows one of these bytes."""
    return text.count(b",") + text.count(b":") + text.count(b"[") + text.count(b"{")


def _without_escapes(piece: bytes) -> bytes:
    """`piece` without escaped backslashes and quotes, which do not end a string."""
    if b"\\" not in piece:
        return piece
    return piece.replace(b"\\\\", b"").replace(b'\\"', b"")


def _pieces(body: bytes, size: int) -> Iterator[bytes]:
    """Yield all of `body` in pieces of about `size` bytes, never cutting an escape."""
    start = 0
    while start < len(body):
        cut = _NO_BACKSLASH.search(body, start + size)
        end = cut.end() if cut else len(body)
        yield body[start:end]
        start = end
