"""Sums of whole months, from which reports over a year read instead of from days.

A job makes them from the sums of days, for months that are over. A call that is counted
late is in its day and not in its month, so a month counts only while it has as many
calls as its days; otherwise reports read the days, until the job has made it anew.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Sum
from django.utils import timezone

from llm.models import UsageSum
from llm.pricing.usage_counting import COUNTS

_Level = UsageSum.Level
#: Levels of days, each with that of its months and the column that identifies a row.
MONTHS_OF: Mapping[str, tuple[UsageSum.Level, str]] = {
    _Level.USER: (_Level.USER_MONTH, "user_id"),
    _Level.TOKEN: (_Level.TOKEN_MONTH, "token_id"),
}


def first_of_month(day: date) -> date:
    return day.replace(day=1)


def end_of_month(month: date) -> date:
    """The last day."""
    return first_of_month(month + timedelta(days=31)) - timedelta(days=1)


def whole_months(first: date, last: date) -> list[date]:
    """The first days of the months that lie within the period."""
    month = first if first.day == 1 else end_of_month(first) + timedelta(days=1)
    found = []
    while end_of_month(month) <= last:
        found.append(month)
        month = end_of_month(month) + timedelta(days=1)
    return found


def complete_months(level: str, calls_by_day: Mapping[date, int]) -> list[date]:
    """Of the whole months among these days those whose sums have all their calls."""
    if level not in MONTHS_OF or not calls_by_day:
        return []
    months = whole_months(min(calls_by_day), max(calls_by_day))
    expected: dict[date, int] = defaultdict(int)
    for day, calls in calls_by_day.items():
        expected[first_of_month(day)] += calls
    found = _calls_of_months(MONTHS_OF[level][0], months)
    return [month for month in months if found.get(month) == expected[month]]


def days_beside(
    first: date, last: date, months: Iterable[date]
) -> list[tuple[date, date]]:
    """The days of the period that are in none of the months, as ranges."""
    ranges, begin = [], first
    for month in sorted(months):
        if begin < month:
            ranges.append((begin, month - timedelta(days=1)))
        begin = end_of_month(month) + timedelta(days=1)
    if begin <= last:
        ranges.append((begin, last))
    return ranges


def _calls_of_months(level: str, months: Iterable[date]) -> dict[date, int]:
    rows = UsageSum.objects.filter(level=level, day__in=list(months)).order_by()
    return dict(rows.values_list("day").annotate(all=Sum("calls")))


def build_months() -> Iterator[Mapping[str, int]]:
    """Make the sums of the months that are over and have changed, one a step. Yields
    no figures of what it has done, as the runner of jobs takes them."""
    today = first_of_month(timezone.localdate())
    days = UsageSum.objects.filter(level=_Level.MODEL, day__lt=today).order_by()
    calls = dict(days.values_list("day").annotate(all=Sum("calls")))
    expected: dict[date, int] = defaultdict(int)
    for day, count in calls.items():
        expected[first_of_month(day)] += count
    for level, (month_level, column) in MONTHS_OF.items():
        found = _calls_of_months(month_level, expected)
        for month, count in expected.items():
            if found.get(month) != count:
                _build_month(level, month_level, column, month)
                yield {}


@transaction.atomic
def _build_month(level: str, month_level: str, column: str, month: date) -> None:
    UsageSum.objects.filter(level=month_level, day=month).delete()
    sums: dict[str, Any] = {f"sum_{name}": Sum(name) for name in COUNTS}
    if column == "token_id":
        sums["label"] = Max("token_label")
    period = (month, end_of_month(month))
    days = UsageSum.objects.filter(level=level, day__range=period).order_by()
    rows = [
        UsageSum(
            key=_digest(month_level, month, row[column]),
            level=month_level,
            day=month,
            token_label=row.get("label") or "",
            **{column: row[column]},
            **{name: row[f"sum_{name}"] for name in COUNTS},
        )
        for row in days.values(column).annotate(**sums)
    ]
    # Another process may make the same month at once.
    UsageSum.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)


def _digest(*parts: Any) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()
