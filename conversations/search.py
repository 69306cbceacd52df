"""Search by words, the same over every database. Pure.

Words are compared without regard to case, and a word that is sought finds all that
begin with it. What has more of the sought words stands first.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

_WORD = re.compile(r"\w+")
_ASCII = re.compile(r"[a-z0-9]+")


def words_of(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", text).lower())


def ranked(query: str, rows: Iterable[T], text: Callable[[T], str]) -> list[T]:
    """The rows with at least one of the sought words, best first; else in their order.

    A query without a word finds nothing.
    """
    sought = set(words_of(query))
    scored = [(score(sought, text(row)), row) for row in rows]
    found = [(points, row) for points, row in scored if points]
    return [row for _, row in sorted(found, key=lambda each: -each[0])]


def score(sought: set[str], text: str) -> int:
    """How many of the sought words begin a word of the text."""
    there = words_of(text)
    return sum(any(word.startswith(each) for word in there) for each in sought)


def fragments(query: str) -> list[str] | None:
    """ASCII texts of which at least one is in every text that has a sought word; None
    where there are no such texts.

    For databases, each of which treats letters beyond ASCII in its own way.
    """
    found = []
    for word in words_of(query):
        runs = _ASCII.findall(word)
        if not runs:
            return None
        found.append(max(runs, key=len))
    return found
