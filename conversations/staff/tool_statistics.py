"""Statistics of tool calls over a period: counts by state, durations and error rates.

The number of queries does not depend on the number of tools. They read only the newest
`MAX_CALLS` calls, so they take no longer in a large database; a report says if that
limit cut the period short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import (
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    Max,
    Q,
    QuerySet,
    Window,
)
from django.db.models.functions import RowNumber
from django.utils import timezone

from conversations.models import ToolCall

#: The periods that may be asked for, by name.
PERIODS: Mapping[str, timedelta] = {
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
MAX_CALLS = 100_000  # newest calls that a report reads

_State = ToolCall.State
_ERRORS = (_State.FAILED, _State.TIMED_OUT, _State.UNKNOWN)
#: States whose duration shows how long the tool takes; a user ended the other calls.
_TIMED = (_State.COMPLETED, _State.FAILED, _State.TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStatistics:
    name: str
    counts: Mapping[str, int] = field(default_factory=dict)  # by state
    p50: float | None = None  # seconds, by nearest rank
    p95: float | None = None
    last_at: datetime | None = None

    @property
    def calls(self) -> int:
        return sum(self.counts.values())

    @property
    def by_state(self) -> list[tuple[str, str, int]]:
        """State, its label and the number of calls, in the order of a call's life."""
        return [
            (state.value, str(state.label), self.counts[state])
            for state in _State
            if state in self.counts
        ]

    @property
    def error_rate(self) -> float | None:
        """Share of errors among calls that no user ended; None without such calls."""
        bad = sum(self.counts.get(state, 0) for state in _ERRORS)
        whole = bad + self.counts.get(_State.COMPLETED, 0)
        return bad / whole if whole else None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsReport:
    tools: Sequence[ToolStatistics]  # by name
    since: datetime
    is_cut: bool  # the period has more calls than MAX_CALLS

    @property
    def by_name(self) -> dict[str, ToolStatistics]:
        return {tool.name: tool for tool in self.tools}


def report(calls: QuerySet[ToolCall], period: str) -> StatisticsReport:
    """Statistics of these calls. Raises KeyError for a period not in PERIODS."""
    since = timezone.now() - PERIODS[period]
    floor = _floor()
    recent = calls.filter(created_at__gte=since, pk__gt=floor).order_by()
    counts: dict[str, dict[str, int]] = {}
    last: dict[str, datetime] = {}
    grouped = recent.values("name", "state").annotate(
        n=Count("pk"), at=Max("created_at")
    )
    for row in grouped:
        name = row["name"]
        counts.setdefault(name, {})[row["state"]] = row["n"]
        last[name] = max(row["at"], last.get(name, row["at"]))
    times = _times(recent)
    tools = [
        ToolStatistics(
            name=name,
            counts=counts[name],
            p50=times.get((name, 50)),
            p95=times.get((name, 95)),
            last_at=last[name],
        )
        for name in sorted(counts)
    ]
    return StatisticsReport(tools=tools, since=since, is_cut=_is_cut(floor, since))


def _floor() -> int:
    """The primary key of the newest call that is not read; 0 if all are read."""
    newest = ToolCall.objects.order_by("-pk").values_list("pk", flat=True)
    return next(iter(newest[MAX_CALLS : MAX_CALLS + 1]), 0)


def _is_cut(floor: int, since: datetime) -> bool:
    return ToolCall.objects.filter(pk=floor, created_at__gte=since).exists()


def _times(recent: QuerySet[ToolCall]) -> dict[tuple[str, int], float]:
    """Seconds by tool and percentile, by nearest rank.

    Computed with window functions because SQLite has no percentile aggregate.
    """
    duration_expression: Any = ExpressionWrapper(
        F("ended_at") - F("started_at"), output_field=DurationField()
    )
    ended = recent.filter(state__in=_TIMED, started_at__isnull=False).exclude(
        ended_at=None
    )
    ranked = ended.annotate(
        took=duration_expression,
        rank=Window(
            RowNumber(), partition_by=F("name"), order_by=duration_expression.asc()
        ),
        whole=Window(Count("pk"), partition_by=F("name")),
    )
    percentiles: dict[tuple[str, int], float] = {}
    for percent in (50, 95):
        wanted = ranked.filter(Q(rank=(F("whole") * percent + 99) / 100))
        for name, duration in wanted.values_list("name", "took"):
            percentiles[name, percent] = duration.total_seconds()
    return percentiles
