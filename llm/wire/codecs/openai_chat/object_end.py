"""The end of a JSON object that arrives in pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: An escape, which a piece may cut after its backslash, a quote, or a brace.
_MARKS = re.compile(r'\\.?|["{}]', re.DOTALL)


class ObjectEnd:
    """Whether an object has arrived as a whole. Each piece is read once, so a host
    cannot make the work grow faster than its answer."""

    __slots__ = ("_depth", "_in_string", "_is_cut", "_is_spoiled", "_read")

    def __init__(self) -> None:
        self._depth = -1  # open braces; -1 before the first
        self._in_string = False
        self._is_cut = False  # the last piece ended within an escape
        self._is_spoiled = False  # something else is before or after the object
        self._read = 0  # pieces

    def is_reached(self, pieces: Sequence[str]) -> bool:
        """`pieces`: those of the last time, and further ones."""
        while self._read < len(pieces) and not self._is_spoiled:
            self._feed(pieces[self._read])
            self._read += 1
        return self._depth == 0 and not self._is_spoiled

    def _feed(self, text: str) -> None:
        if self._depth <= 0:
            text = text.strip()
            other = self._depth == 0 or not text.startswith("{")
            if not text or other:
                self._is_spoiled = bool(text)
                return
        start, self._is_cut = int(self._is_cut), False
        for mark in _MARKS.finditer(text, start):
            self._count(mark[0])
            if self._depth == 0:
                self._is_spoiled = mark.end() < len(text.rstrip())
                return

    def _count(self, mark: str) -> None:
        if mark == "\\":
            self._is_cut = True
        elif mark == '"':
            self._in_string = not self._in_string
        elif mark == "{" and not self._in_string:
            self._depth = max(self._depth, 0) + 1
        elif mark == "}" and not self._in_string:
            self._depth -= 1
