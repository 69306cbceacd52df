"""An incremental recogniser for one JSON object or array.

In: text in pieces. Out: whether the text so far can be the beginning of JSON, where the
value ends, and where the members of the outermost object stand. It reads each character
once and stores none. Theory: `_closers` are the brackets still to come, `_expects`
names what may come next; strings, escapes and literals may be cut anywhere, so each is
a state of its own.

Source: https://www.rfc-editor.org/rfc/rfc8259
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_Expected = Literal[
    "start",
    "first key",
    "key",
    "colon",
    "first value",
    "value",
    "comma",
    "string",
    "escape",
    "hex",
    "literal",
]

_BLANK = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')  # inside a string
_LITERAL = re.compile(r"[-+.\w]*", re.ASCII)
_WHOLE_LITERAL = re.compile(
    r"true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", re.ASCII
)
_MAX_LITERAL = 400  # characters; the longest float written out has 325
_CLOSERS = {"{": "}", "[": "]"}


@dataclass(slots=True)
class Member:
    """Offsets of a member of the outermost object, in characters from its `{`."""

    key: int
    key_end: int = 0
    value: int = 0
    value_end: int = 0  # 0 until it has been read completely


class JsonReader:
    """Reads one value that begins with `{` or `[`."""

    __slots__ = (
        "_closers",
        "_expects",
        "_hex",
        "_is_key",
        "_literal",
        "is_broken",
        "is_whole",
        "members",
        "size",
    )

    def __init__(self) -> None:
        self.is_whole = False
        self.is_broken = False
        self.members: list[Member] = []
        self.size = 0  # characters read
        self._expects: _Expected = "start"
        self._closers: list[str] = []
        self._is_key = False  # whether the string being read is a key
        self._hex = 0  # digits of a \u escape still to come
        self._literal = ""

    def feed(self, text: str, position: int = 0) -> int:
        """Read on from `position`. Returns where reading stopped: at the end of `text`,
        behind the value, or at the first invalid character."""
        before = self.size - position
        while position < len(text) and not (self.is_whole or self.is_broken):
            self.size = before + position
            position = self._read(text, position)
        self.size = before + position
        return position

    def _read(self, text: str, position: int) -> int:
        match self._expects:
            case "string":
                return self._string(text, position)
            case "escape":
                return self._escape(text, position)
            case "hex":
                return self._hex_digit(text, position)
            case "literal":
                return self._literal_on(text, position)
        blank = _BLANK.match(text, position)
        assert blank is not None
        if blank.end() > position and self._closers:
            return blank.end()
        return self._token(text[position], position)

    # Between the tokens

    def _token(self, char: str, position: int) -> int:
        expects = self._expects
        if char in "{[" and expects in ("start", "first value", "value"):
            return self._open(char, position)
        if char in "}]" and expects in ("first key", "first value", "comma"):
            return self._close(char, position)
        if char == '"' and expects in ("first key", "key", "first value", "value"):
            self._is_key = expects.endswith("key")
            self._begin(key=self._is_key)
            self._expects = "string"
            return position + 1
        if char == ":" and expects == "colon":
            self._expects = "value"
            return position + 1
        if char == "," and expects == "comma":
            self._expects = "key" if self._closers[-1] == "}" else "value"
            return position + 1
        if char in "-0123456789tfn" and expects in ("first value", "value"):
            self._begin(key=False)
            self._literal, self._expects = "", "literal"
            return position
        return self._break(position)

    def _open(self, char: str, position: int) -> int:
        self._begin(key=False)
        self._closers.append(_CLOSERS[char])
        self._expects = "first key" if char == "{" else "first value"
        return position + 1

    def _close(self, char: str, position: int) -> int:
        if self._closers[-1] != char:
            return self._break(position)
        self._closers.pop()
        self.is_whole = not self._closers
        self._end_token(1)
        return position + 1

    def _begin(self, *, key: bool) -> None:
        """Record that a key or a value begins at `size`."""
        if self._closers != ["}"]:
            return
        if key:
            self.members.append(Member(self.size))
        elif self.members:
            self.members[-1].value = self.size

    def _end_token(self, length: int) -> None:
        """Record that a key or a value ends `length` characters after `size`."""
        in_members = self._closers == ["}"]
        if self._is_key:
            self._is_key, self._expects = False, "colon"
            if in_members:
                self.members[-1].key_end = self.size + length
            return
        self._expects = "comma"
        if in_members:
            self.members[-1].value_end = self.size + length

    def _break(self, position: int) -> int:
        self.is_broken = True
        return position

    # Inside a token

    def _string(self, text: str, position: int) -> int:
        plain = _PLAIN.match(text, position)
        assert plain is not None
        if plain.end() > position:
            return plain.end()
        match text[position]:
            case '"':
                self._end_token(1)
            case "\\":
                self._expects = "escape"
            case _:
                return self._break(position)
        return position + 1

    def _escape(self, text: str, position: int) -> int:
        char = text[position]
        if char not in '"\\/bfnrtu':
            return self._break(position)
        self._hex = 4
        self._expects = "hex" if char == "u" else "string"
        return position + 1

    def _hex_digit(self, text: str, position: int) -> int:
        if text[position] not in "0123456789abcdefABCDEF":
            return self._break(position)
        self._hex -= 1
        if not self._hex:
            self._expects = "string"
        return position + 1

    def _literal_on(self, text: str, position: int) -> int:
        found = _LITERAL.match(text, position)
        assert found is not None
        self._literal += found[0]
        if len(self._literal) > _MAX_LITERAL:
            return self._break(found.end())
        if found.end() == len(text):
            return found.end()
        if not _WHOLE_LITERAL.fullmatch(self._literal):
            return self._break(found.end())
        self.size += found.end() - position
        self._end_token(0)
        return found.end()
