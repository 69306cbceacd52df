"""Text that can be kept and sent on, whoever wrote it. Pure.

In: what a provider, a tool or a program said. Out: the same without two things that
JSON can say. NUL is kept nowhere by PostgreSQL, and half of a surrogate pair has no
bytes in UTF-8; both become U+FFFD. Two halves that met are made one letter.

Source: https://www.postgresql.org/docs/current/datatype-json.html
"""

from __future__ import annotations

import re
from typing import Any

import orjson

MAX_DEPTH = 250  # levels of a JSON value; orjson writes a few more
NUL = b"\\u0000"  # as JSON writes it
_BACKSLASH = b"\\\\"  # as JSON writes it
_STAND_IN = b"\0\0"  # no JSON has it
_PIECE = 16 * 1024  # bytes that are mended in one go; in a thread, others run between
#: A piece that cuts no escape in two; the last may be a backslash that begins none.
_ESCAPES = re.compile(rb"(?:[^\\]|\\u[0-9a-fA-F]{4}|\\.){1,%d}|\\" % _PIECE, re.DOTALL)


def mended(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def mended_json(value: Any) -> Any:
    """A JSON value with its texts and names mended; itself where nothing is to mend.

    Raises ValueError for one that is nested too deeply to be sent on.
    """
    if isinstance(value, str):
        return mended(value)
    try:
        told = orjson.dumps(value)
    except TypeError:  # half a pair
        return _mended(value)
    return orjson.loads(without_nul(told)) if NUL in told else value


def without_nul(told: bytes) -> bytes:
    """The same JSON with U+FFFD for each NUL in its texts and names."""
    if NUL not in told or b"\0" in told:  # what has a bare NUL is no JSON
        return told
    if len(told) <= _PIECE:
        return _without_nul(told)
    pieces = _ESCAPES.finditer(told)
    return b"".join(_without_nul(piece[0]) for piece in pieces)


def _without_nul(told: bytes) -> bytes:
    if _BACKSLASH not in told:
        return told.replace(NUL, b"\\ufffd")
    told = told.replace(_BACKSLASH, _STAND_IN).replace(NUL, b"\\ufffd")
    return told.replace(_STAND_IN, _BACKSLASH)


def _mended(value: Any, depth: int = MAX_DEPTH) -> Any:
    if not depth:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    match value:
        case str():
            return mended(value)
        case list() | tuple():
            return [_mended(each, depth - 1) for each in value]
        case dict():
            return {
                _mended(name): _mended(each, depth - 1) for name, each in value.items()
            }
    return value
