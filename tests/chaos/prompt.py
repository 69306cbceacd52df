"""The content of a request, independent of wire formats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .wish import Wish, wish_in

_RESULT = re.compile(r"Result of the call (\S+) of \S+ in the background")


@dataclass(frozen=True, slots=True)
class UserText:
    """A text of the user or the system."""

    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the assistant."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning that came back; its proof names the issuer."""

    proof: str


@dataclass(frozen=True, slots=True)
class Called:
    call_id: str


@dataclass(frozen=True, slots=True)
class Output:
    call_id: str


@dataclass(frozen=True, slots=True)
class Result:
    """The message that delivers the result of a background call."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Search:
    """A call of a hosted tool that came back."""

    id: str


Entry = UserText | Text | Thought | Called | Output | Result | Search


def entry_of_user(text: str) -> Entry:
    found = _RESULT.search(text)
    return Result(found[1]) if found else UserText(text)


@dataclass(frozen=True, slots=True)
class Prompt:
    """The latest wish and all entries after it."""

    wish: Wish
    entries: Sequence[Entry]
    streams: bool = True
    continues: str = ""  # a token for the rest of an answer that was cut into portions

    @property
    def prefilled(self) -> str:
        """The beginning of an answer that is to be continued; "" for none."""
        last = self.entries[-1] if self.entries else None
        return last.text if isinstance(last, Text) else ""


def prompt_of(
    entries: Sequence[Entry], *, streams: bool, continues: str = ""
) -> Prompt | None:
    """None if no message contains a wish."""
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        if isinstance(entry, UserText) and (wish := wish_in(entry.text)):
            return Prompt(wish, entries[index + 1 :], streams, continues)
    return None
