"""Sanitizing of text so that PostgreSQL stores it and UTF-8 encodes it. Pure.

In: text or JSON from a provider, a tool or a program. Out: the same with U+FFFD for
NUL, which PostgreSQL cannot store, and for half of a surrogate pair, which has no
encoding in UTF-8. Two matching halves become one character.

Source: https://www.postgresql.org/docs/current/datatype-json.html
"""

from __future__ import annotations

import re
from typing import Any

import orjson

MAX_DEPTH = 250  # levels of a JSON value; orjson writes a few more
NUL = b"\\u0000"  # as JSON writes it
_BACKSLASH = b"\\\\"  # as JSON writes it
_STAND_IN = b"\0\0"  # never occurs in JSON
_PIECE = 16 * 1024  # bytes replaced in one go; other threads can run between pieces
#: Matches a piece that ends between two escapes; the last byte may be a single
#: backslash.
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
    """`value` with its strings and names sanitized; the same object if nothing changes.

    Raises ValueError for a value that is nested too deeply to be sent on.
    """
    if isinstance(value, str):
        return mended(value)
    try:
        told = orjson.dumps(value)
    except TypeError:  # half a surrogate pair
        return _mended(value)
    return orjson.loads(without_nul(told)) if NUL in told else value


def without_nul(told: bytes) -> bytes:
    """The same JSON with U+FFFD for each NUL in its strings and names."""
    if NUL not in told or b"\0" in told:  # with a bare NUL byte it is not JSON
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
