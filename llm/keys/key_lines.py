"""Keys in the lines of a text, such as a `.env` file. Pure.

A line is a key, `NAME=key` as in a `.env` file, or `label = key`. Other text before a
"=" is part of the key: as a label it would be stored and shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_VARIABLE = re.compile(r"(?:export\s+)?([A-Z][A-Z0-9_]*)\s*=\s*(.+)")
_LABELLED = re.compile(r"(\S(?:.*?\S)?)\s+=\s+(.+)")
_QUOTED = re.compile(r"([\"'])(.*)\1(?:\s+#.*)?")
_COMMENT = re.compile(r"\s+#.*")


@dataclass(frozen=True, slots=True)
class KeyLine:
    number: int  # of the line, from 1
    label: str  # "" for none
    key: str = field(repr=False)


def read_key_lines(text: str) -> Iterator[KeyLine]:
    """The keys, without empty lines and comments."""
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        found = _VARIABLE.fullmatch(line) or _LABELLED.fullmatch(line)
        label, key = found.groups() if found else ("", line)
        yield KeyLine(number, label, _unquote(key))


def _unquote(text: str) -> str:
    if quoted := _QUOTED.fullmatch(text):
        return quoted[2]
    return text if text.startswith("{") else _COMMENT.sub("", text)
