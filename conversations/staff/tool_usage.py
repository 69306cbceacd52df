"""Calls of tools over days: by tool, and of the most called ones by day.

Everybody's are read from counts by day and by month
(`engine.maintenance.tool_call_counts`), one user's from the calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import QuerySet

from conversations.engine.maintenance.tool_call_counts import (
    COUNTED,
    ToolCallCount,
    calls_of_months,
    month_of,
    newest_uncounted,
    start_of,
    with_output_size,
)
from conversations.models import ToolCall
from conversations.staff.tool_statistics import (
    MAX_CALLS,
    MAX_UNCOUNTED,
    ToolStatistics,
    statistics_of,
)
from llm.pricing.usage_months import days_beside, whole_months
from tools.models.tool_use import ToolUse

_COLUMNS = ("name", "state", "blocking")
_TIMES = ("created_at", "started_at", "ended_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsage:
    tools: Sequence[ToolStatistics]  # the most called first
    by_day: Mapping[str, Mapping[date, int]]  # calls by tool and day, in UTC
    is_cut: bool  # there are more calls than were read


def report_tools(first: date, last: date, *, user_id: int | None = None) -> ToolUsage:
    """Days are those of UTC. Of one user: calls in the user's own conversations."""
    begin, end = _begin(first), _begin(last + timedelta(days=1))
    report = _Report()
    if user_id is None:
        report.add_counts(first, last)
        calls, is_cut = newest_uncounted(begin, end, MAX_UNCOUNTED)
    else:
        own = ToolCall.objects.filter(turn__conversation__owner=user_id)
        own = own.filter(created_at__gte=begin, created_at__lt=end).order_by("-pk")
        own = with_output_size(own)
        found = list(own.values(*_COLUMNS, *_TIMES, "output_size")[: MAX_CALLS + 1])
        calls, is_cut = found[:MAX_CALLS], len(found) > MAX_CALLS
    report.add_calls(calls)
    tools = sorted(statistics_of(report.uses), key=lambda tool: -tool.calls)
    return ToolUsage(tools=tools, by_day=report.by_day, is_cut=is_cut)


class _Report:
    def __init__(self) -> None:
        self.uses: dict[tuple[str, str, bool], ToolCallCount] = defaultdict(
            ToolCallCount
        )
        self.by_day: dict[str, Counter[date]] = defaultdict(Counter)

    def use(self, row: Mapping[str, Any]) -> ToolCallCount:
        return self.uses[row["name"], row["state"], row["blocking"]]

    def add_counts(self, first: date, last: date) -> None:
        """Of whole months their sums, as durations of every day take long to read."""
        days = ToolUse.objects.filter(span=ToolUse.Span.DAY, **_starts(first, last))
        by_month: Counter[datetime] = Counter()
        for name, start, calls in days.values_list("name", "start", "calls"):
            self.by_day[name][start.astimezone(UTC).date()] += calls
            by_month[month_of(start)] += calls
        whole = [_begin(month) for month in whole_months(first, last)]
        found = calls_of_months(whole)
        months = [each for each in whole if found.get(each) == by_month[each]]
        rows = ToolUse.objects.filter(span=ToolUse.Span.MONTH, start__in=months)
        self._add_rows(rows)
        for begin, end in days_beside(first, last, [each.date() for each in months]):
            self._add_rows(days.filter(**_starts(begin, end)))

    def _add_rows(self, rows: QuerySet[ToolUse]) -> None:
        for row in rows.values(*_COLUMNS, *COUNTED):
            self.use(row).add_row(row)

    def add_calls(self, calls: Iterable[Mapping[str, Any]]) -> None:
        for call in calls:
            day = start_of(ToolUse.Span.DAY, call["created_at"].astimezone(UTC))
            self.use(call).add(call)
            self.by_day[call["name"]][day.date()] += 1


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def _starts(first: date, last: date) -> dict[str, datetime]:
    """Lookups of the rows of these days."""
    end = _begin(last + timedelta(days=1))
    return {"start__gte": _begin(first), "start__lt": end}
