"""Calls of tools over days: by tool, and of the most called ones by day.

Everybody's are read from counts by day (`engine.maintenance.tool_call_counts`), one
user's from the calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import QuerySet

from conversations.engine.maintenance.tool_call_counts import Use, start_of, uncounted
from conversations.models import ToolCall
from conversations.staff.tool_statistics import (
    MAX_CALLS,
    MAX_UNCOUNTED,
    ToolStatistics,
    statistics_of,
)
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
    begin = datetime.combine(first, time.min, UTC)
    end = datetime.combine(last + timedelta(days=1), time.min, UTC)
    report = _Report()
    if user_id is None:
        span = ToolUse.Span.DAY
        counted = ToolUse.objects.filter(span=span, start__gte=begin, start__lt=end)
        for row in counted.values(*_COLUMNS, "start", "calls", "durations", "last_at"):
            report.use(row).add_row(row)
            report.by_day[row["name"]][row["start"].date()] += row["calls"]
        calls, most = uncounted(), MAX_UNCOUNTED
    else:
        calls = ToolCall.objects.filter(turn__conversation__owner=user_id)
        most = MAX_CALLS
    is_cut = report.add_calls(
        calls.filter(created_at__gte=begin, created_at__lt=end), most
    )
    tools = sorted(statistics_of(report.uses), key=lambda tool: -tool.calls)
    return ToolUsage(tools=tools, by_day=report.by_day, is_cut=is_cut)


class _Report:
    def __init__(self) -> None:
        self.uses: dict[tuple[str, str, bool], Use] = defaultdict(Use)
        self.by_day: dict[str, Counter[date]] = defaultdict(Counter)

    def use(self, row: Mapping[str, Any]) -> Use:
        return self.uses[row["name"], row["state"], row["blocking"]]

    def add_calls(self, calls: QuerySet[ToolCall], most: int) -> bool:
        """True if there are more, which are left out."""
        newest = calls.order_by("-pk").values(*_COLUMNS, *_TIMES)
        found = list(newest[: most + 1])
        for call in found[:most]:
            day = start_of(ToolUse.Span.DAY, call["created_at"].astimezone(UTC))
            self.use(call).add(call)
            self.by_day[call["name"]][day.date()] += 1
        return len(found) > most
