"""Statistics of tool calls over a period: counts by state, durations and error rates.

`report_all` reads the counts by hour and by day
(`engine.maintenance.tool_call_counts`) and the calls that are not counted yet, so it
takes no longer for a million calls. `report` reads the calls themselves, for one
user's, and only the newest `MAX_CALLS`; it says if that limit cut the period short.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
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

from conversations.engine.maintenance.tool_call_counts import (
    COUNTED,
    TIMED,
    ToolCallCount,
    newest_uncounted,
    percentile,
    start_of,
)
from conversations.models import ToolCall
from tools.models.tool_use import ToolUse

#: The periods that may be asked for, by name.
PERIODS: Mapping[str, timedelta] = {
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
MAX_CALLS = 100_000  # newest calls that a report reads
MAX_UNCOUNTED = 20_000  # newest calls that are read beside the counts

_State = ToolCall.State
_ERRORS = (_State.FAILED, _State.TIMED_OUT, _State.UNKNOWN)
_PENDING = (_State.PENDING, *ToolCall.AWAITING_PERSON, _State.EXECUTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStatistics:
    name: str
    counts: Mapping[str, int] = field(default_factory=dict)  # by state
    #: Of these, the calls whose result the model does not wait for.
    background_counts: Mapping[str, int] = field(default_factory=dict)
    p50: float | None = None  # seconds, by nearest rank
    p95: float | None = None
    last_at: datetime | None = None
    #: Of the results, estimated; None where no result's size is known.
    output_tokens: int | None = None

    @property
    def calls(self) -> int:
        return sum(self.counts.values())

    @property
    def non_blocking(self) -> int:
        return sum(self.background_counts.values())

    @property
    def blocking(self) -> int:
        return self.calls - self.non_blocking

    @property
    def pending(self) -> int:
        """Calls that have not ended."""
        return sum(self.counts.get(state, 0) for state in _PENDING)

    @property
    def pending_non_blocking(self) -> int:
        return sum(self.background_counts.get(state, 0) for state in _PENDING)

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


def report_all(period: str) -> StatisticsReport:
    """Statistics of all users' calls, from the begin of the period's first hour, or
    day for more than one. Raises KeyError for a period not in PERIODS."""
    length = PERIODS[period]
    is_short = length <= timedelta(days=1)
    span = ToolUse.Span.HOUR if is_short else ToolUse.Span.DAY
    since = start_of(span, (timezone.now() - length).astimezone(UTC))
    uses: dict[tuple[str, str, bool], ToolCallCount] = defaultdict(ToolCallCount)
    columns = ("name", "state", "blocking")
    counted = ToolUse.objects.filter(span=span, start__gte=since)
    for row in counted.values(*columns, *COUNTED):
        uses[row["name"], row["state"], row["blocking"]].add_row(row)
    # Newest first: while those of an earlier version are counted there may be millions.
    later = timezone.now() + timedelta(days=1)
    live, is_cut = newest_uncounted(since, later, MAX_UNCOUNTED)
    for call in live:
        uses[call["name"], call["state"], call["blocking"]].add(call)
    return StatisticsReport(tools=statistics_of(uses), since=since, is_cut=is_cut)


def statistics_of(
    uses: Mapping[tuple[str, str, bool], ToolCallCount],
) -> list[ToolStatistics]:
    """By name, from uses by name, state and whether the model waits."""
    by_name: dict[str, list[tuple[str, bool, ToolCallCount]]] = defaultdict(list)
    for (name, state, blocking), use in uses.items():
        by_name[name].append((state, blocking, use))
    return [_of_tool(name, by_name[name]) for name in sorted(by_name)]


def _of_tool(
    name: str, uses: Sequence[tuple[str, bool, ToolCallCount]]
) -> ToolStatistics:
    counts: Counter[str] = Counter()
    background: Counter[str] = Counter()
    durations: Counter[int] = Counter()
    for state, blocking, use in uses:
        counts[state] += use.calls
        durations.update(use.durations)
        if not blocking:
            background[state] += use.calls
    return ToolStatistics(
        name=name,
        counts=dict(counts),
        background_counts=dict(background),
        p50=percentile(durations, 50),
        p95=percentile(durations, 95),
        last_at=max(use.last_at for _, _, use in uses),
        output_tokens=sum(use.output_tokens for _, _, use in uses)
        if any(use.sized for _, _, use in uses)
        else None,
    )


def report(calls: QuerySet[ToolCall], period: str) -> StatisticsReport:
    """Statistics of these calls. Raises KeyError for a period not in PERIODS."""
    since = timezone.now() - PERIODS[period]
    floor = _floor()
    recent = calls.filter(created_at__gte=since, pk__gt=floor).order_by()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    background: dict[str, Counter[str]] = defaultdict(Counter)
    last: dict[str, datetime] = {}
    grouped = recent.values("name", "state", "blocking").annotate(
        n=Count("pk"), at=Max("created_at")
    )
    for row in grouped:
        name = row["name"]
        counts[name][row["state"]] += row["n"]
        if not row["blocking"]:
            background[name][row["state"]] += row["n"]
        last[name] = max(row["at"], last.get(name, row["at"]))
    times = _times(recent)
    tools = [
        ToolStatistics(
            name=name,
            counts=dict(counts[name]),
            background_counts=dict(background[name]),
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
    ended = recent.filter(state__in=TIMED, started_at__isnull=False).exclude(
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
