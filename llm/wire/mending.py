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
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")  # behind no odd backslash


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
    return _NUL.sub(rb"\1\\ufffd", told) if NUL in told else told


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
