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
_PLACEHOLDER = b"\0\0"  # never occurs in JSON
_PIECE = 16 * 1024  # bytes replaced in one go; other threads can run between pieces
#: Matches a piece that ends between two escapes; the last byte may be a single
#: backslash.
_ESCAPES = re.compile(rb"(?:[^\\]|\\u[0-9a-fA-F]{4}|\\.){1,%d}|\\" % _PIECE, re.DOTALL)


def sanitize_text(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def sanitize_json(value: Any) -> Any:
    """`value` with its strings and names sanitized; the same object if nothing changes.

    Raises ValueError for a value that is nested too deeply to be sent on.
    """
    if isinstance(value, str):
        return sanitize_text(value)
    try:
        encoded = orjson.dumps(value)
    except TypeError:  # half a surrogate pair
        return _sanitize_json(value)
    return orjson.loads(replace_nul(encoded)) if NUL in encoded else value


def replace_nul(encoded: bytes) -> bytes:
    """The same JSON with U+FFFD for each NUL in its strings and names."""
    if NUL not in encoded or b"\0" in encoded:  # with a bare NUL byte it is not JSON
        return encoded
    if len(encoded) <= _PIECE:
        return _replace_nul(encoded)
    pieces = _ESCAPES.finditer(encoded)
    return b"".join(_replace_nul(piece[0]) for piece in pieces)


def _replace_nul(encoded: bytes) -> bytes:
    if _BACKSLASH not in encoded:
        return encoded.replace(NUL, b"\\ufffd")
    encoded = encoded.replace(_BACKSLASH, _PLACEHOLDER).replace(NUL, b"\\ufffd")
    return encoded.replace(_PLACEHOLDER, _BACKSLASH)


def _sanitize_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    if not depth:
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    match value:
        case str():
            return sanitize_text(value)
        case list() | tuple():
            return [_sanitize_json(each, depth - 1) for each in value]
        case dict():
            return {
                _sanitize_json(name): _sanitize_json(each, depth - 1)
                for name, each in value.items()
            }
    return value
