"""A page of a turn's events, made from its rows, for walking through by number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from conversations.engine.event_log import Entry
from conversations.engine.finished_turn_events import replay
from conversations.models import Turn

EVENTS = 50  # on a page
MAX_TEXT = 20_000  # characters of an event


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    number: int  # among the turn's events, from 0
    position: str  # where a subscriber received it
    type: str
    text: str
    is_sought: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    lines: Sequence[EventLine]
    total: int
    first: int
    is_over: bool  # events can be made from rows only when the turn is over

    @property
    def previous(self) -> int | None:
        return max(0, self.first - EVENTS) if self.first else None

    @property
    def next(self) -> int | None:
        after = self.first + EVENTS
        return after if after < self.total else None


def event_page(turn: Turn, at: str) -> EventPage:
    """The page with the event `at`: its number, or a position like `1-12`. The first
    page if there is no such event."""
    finished = replay(turn.pk)
    if finished is None:
        return EventPage(lines=(), total=0, first=0, is_over=False)
    entries = finished.entries
    sought = _find(entries, at)
    first = (sought or 0) // EVENTS * EVENTS
    return EventPage(
        lines=[
            _line(number, entry, number == sought)
            for number, entry in enumerate(entries[first : first + EVENTS], first)
        ],
        total=len(entries),
        first=first,
        is_over=True,
    )


def _find(entries: Sequence[Entry], at: str) -> int | None:
    if at.isascii() and at.isdecimal():
        number = int(at[:9])
        return number if number < len(entries) else None
    found = [n for n, entry in enumerate(entries) if _position(entry) == at]
    return found[-1] if found else None


def _position(entry: Entry) -> str:
    return str(entry.earlier_position or entry.position)


def _line(number: int, entry: Entry, is_sought: bool) -> EventLine:
    text = json.dumps(entry.event, ensure_ascii=False, indent=2)
    return EventLine(
        number=number,
        position=_position(entry),
        type=entry.type,
        text=text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…",
        is_sought=is_sought,
    )
