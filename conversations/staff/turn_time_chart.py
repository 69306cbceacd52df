"""Where the time of a turn went: a bar for each phase, and the share of each kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from conversations.models import Turn
from conversations.staff.turn_timeline import TimelineEntry

MAX_BARS = 60  # the longest ones

#: Of phases at the same time, the first one here is what the turn waited for.
_KINDS: Mapping[str, Any] = {
    "person": gettext_lazy("a person"),
    "tool": gettext_lazy("tools"),
    "model": gettext_lazy("model calls"),
    "queue": gettext_lazy("the queue"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    kind: str
    title: str
    state: str
    bad: bool
    anchor: str
    seconds: float
    left: float  # percent of the chart's width
    width: float  # percent
    before: float  # percent: of a model call, up to its first token


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    kind: str
    label: str
    seconds: float
    percent: float
    left: float  # percent, where its part of the bar begins


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChart:
    seconds: float
    shares: Sequence[Share]
    bars: Sequence[Bar]
    hidden: int  # number of shorter bars that are left out


def time_chart(turn: Turn, entries: Iterable[TimelineEntry]) -> TimeChart | None:
    """None if nothing of the turn has a duration yet."""
    phases = [e for e in entries if e.seconds is not None and e.kind in _KINDS]
    spans = [(e.kind, *_span(e, turn.created_at)) for e in phases]
    whole = max((end for _kind, _start, end in spans), default=0.0)
    if turn.finished_at:
        whole = max(whole, (turn.finished_at - turn.created_at).total_seconds())
    if whole <= 0:
        return None
    longest = sorted(phases, key=lambda e: -(e.seconds or 0))[:MAX_BARS]
    shown = set(map(id, longest))
    return TimeChart(
        seconds=whole,
        shares=_shares(spans, whole),
        bars=[_bar(e, turn.created_at, whole) for e in phases if id(e) in shown],
        hidden=len(phases) - len(longest),
    )


def _span(entry: TimelineEntry, start: datetime) -> tuple[float, float]:
    begin = max(0.0, (entry.at - start).total_seconds())
    return begin, begin + (entry.seconds or 0)


def _bar(entry: TimelineEntry, start: datetime, whole: float) -> Bar:
    begin, end = _span(entry, start)
    return Bar(
        kind=entry.kind,
        title=entry.title,
        state=entry.state,
        bad=entry.bad,
        anchor=entry.anchor,
        seconds=end - begin,
        left=_percent(begin, whole),
        # A short phase is seen as well.
        width=max(0.4, _percent(end - begin, whole)),
        before=_percent(min(entry.first or 0, end - begin), whole),
    )


def _shares(spans: Sequence[tuple[str, float, float]], whole: float) -> list[Share]:
    """Each moment counts once, for what the turn waited for."""
    cuts = sorted({0.0, whole, *(at for _kind, *ends in spans for at in ends)})
    totals = dict.fromkeys([*_KINDS, "rest"], 0.0)
    for begin, end in pairwise(cuts):
        running = {kind for kind, first, last in spans if first <= begin < last}
        kind = next((each for each in _KINDS if each in running), "rest")
        totals[kind] += end - begin
    labels = {**_KINDS, "rest": _("Parley itself, and waits between attempts")}
    shares, left = [], 0.0
    for kind in ("queue", "model", "tool", "person", "rest"):
        percent = _percent(totals[kind], whole)
        shares.append(
            Share(
                kind=kind,
                label=str(labels[kind]),
                seconds=totals[kind],
                percent=percent,
                left=round(left, 2),
            )
        )
        left += percent
    return shares


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)
