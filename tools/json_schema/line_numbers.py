"""Line numbers of values in a JSON text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

_BLANK = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1, of the value at `path` in valid JSON.

    If the path does not exist, the line of the deepest existing value on it.
    """
    at = _skip_blanks(text, 0)
    for step in path:
        positions = dict(_members(text, at)) if text[at] in "{[" else {}
        if step not in positions:
            break
        at = positions[step]
    return text.count("\n", 0, at) + 1


def _members(text: str, at: int) -> Iterator[tuple[str | int, int]]:
    """Yield key or index and text position of each member of the object or array that
    begins at `at`."""
    is_object = text[at] == "{"
    at = _skip_blanks(text, at + 1)
    number = 0
    while text[at] not in "}]":
        key: str | int = number
        if is_object:
            key, at = _decoder.raw_decode(text, at)
            at = _skip_blanks(text, _skip_blanks(text, at) + 1)  # past the colon
        yield key, at
        _, at = _decoder.raw_decode(text, at)
        at = _skip_blanks(text, at)
        if text[at] == ",":
            at = _skip_blanks(text, at + 1)
        number += 1


def _skip_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
