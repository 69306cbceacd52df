"""What the provider answers, in no wire format: parts with numbered words.

Each word says which answer it belongs to, which part of it, and its place: "a3-0-17" is
word 17 of the first part of the third answer. So a text that was cut, doubled or mixed
with another is found by comparing it with the text that was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

End = Literal["stop", "calls", "pause"]


@dataclass(frozen=True, slots=True)
class Think:
    """Reasoning, with the proof that a provider wants back unchanged."""

    text: str
    proof: str


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Search:
    """A call of a tool that the provider runs itself, with its result."""

    id: str
    query: str
    url: str


Part = Think | Say | Call | Search


@dataclass(frozen=True, slots=True)
class Answer:
    """`source` begins all its words and ids; `step` is its place in the scenario."""

    source: str
    step: int
    parts: tuple[Part, ...]
    end: End = "stop"


def numbered(source: str, part: int, count: int, size: int = 0) -> str:
    """`count` words, each filled up to `size` characters."""
    words = (f"{source}-{part}-{n}" for n in range(1, count + 1))
    return " ".join(word.ljust(size, "x") for word in words)


def pieces(text: str) -> list[str]:
    """The words of a text as a provider streams them; joined they are the text."""
    first, *others = text.split(" ")
    return [first, *(f" {word}" for word in others)]


def source_of(text: str) -> str:
    """The source of the answer a text was cut from; "" where it has none."""
    source, _, rest = text.lstrip().partition("-")
    return source if rest and source[:1] in "as" else ""
