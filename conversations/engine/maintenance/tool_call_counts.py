"""Counts of finished tool calls by hour, day and month, which statistics read.

A call is counted once, after it has ended, in the transaction that marks it
(`ToolCall.is_counted`). So the counted rows and the calls that are not counted yet are
all calls, at any time. What was counted stays when a call's conversation is erased.
Months that are over are summed up from their days, and count while they have as many
calls.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Case, Q, Sum, TextField, When
from django.db.models.functions import Cast, Length
from django.utils import timezone

from conversations.models import ToolCall
from conversations.turns.history import BYTES_A_TOKEN
from tools.execution.output import MAX_TEXT
from tools.models.tool_use import ToolUse

BATCH = 2_000  # calls that are counted in one transaction
#: Neighbouring classes of durations differ by this factor, so a percentile is exact
#: to half of it.
_STEP = math.log(1.02)
_NEVER = datetime.min.replace(tzinfo=UTC)
_SHORTEST = 0.001  # seconds; the class 0 has all that is shorter

_State = ToolCall.State
#: States whose duration shows how long the tool takes; a user ended the other calls.
TIMED = (_State.COMPLETED, _State.FAILED, _State.TIMED_OUT)
_FIELDS = (
    "name",
    "state",
    "blocking",
    "created_at",
    "started_at",
    "ended_at",
    "output_size",
)
#: Columns of `ToolUse` that `ToolCallCount.add_row` reads.
COUNTED = ("calls", "durations", "last_at", "output_tokens", "sized")

Key = tuple[str, datetime, str, str, bool]  # the unique columns of `ToolUse`


def count_calls() -> Iterator[Mapping[str, int]]:
    """Count the calls that have ended, one transaction per step."""
    while count := _count_batch():
        yield {"tool calls": count}


@dataclass(slots=True)
class ToolCallCount:
    """Calls of one tool with one outcome."""

    calls: int = 0
    durations: Counter[int] = field(default_factory=Counter)
    last_at: datetime = _NEVER
    output_tokens: int = 0  # of results, estimated
    sized: int = 0  # calls whose result's size is known

    def add(self, call: Mapping[str, Any]) -> None:
        self.calls += 1
        self.last_at = max(self.last_at, call["created_at"])
        started, ended = call["started_at"], call["ended_at"]
        if call["state"] in TIMED and started and ended:
            self.durations[class_of((ended - started).total_seconds())] += 1
        if (size := call["output_size"]) is not None:
            self.output_tokens += min(size, MAX_TEXT) // BYTES_A_TOKEN
            self.sized += 1

    def add_row(self, row: Mapping[str, Any]) -> None:
        self.calls += row["calls"]
        self.last_at = max(self.last_at, row["last_at"])
        for number, count in row["durations"].items():
            self.durations[int(number)] += count
        self.output_tokens += row["output_tokens"]
        self.sized += row["sized"]


def class_of(seconds: float) -> int:
    if seconds <= _SHORTEST:
        return 0
    return 1 + round(math.log(seconds / _SHORTEST) / _STEP)


def seconds_of(number: int) -> float:
    return 0.0 if number == 0 else _SHORTEST * math.exp((number - 1) * _STEP)


def percentile(durations: Mapping[int, int], percent: int) -> float | None:
    """Seconds by nearest rank; None without durations."""
    rank = -(-sum(durations.values()) * percent // 100)
    for number in sorted(durations):
        rank -= durations[number]
        if rank <= 0:
            return seconds_of(number)
    return None


def start_of(span: str, at: datetime) -> datetime:
    hour = at.replace(minute=0, second=0, microsecond=0)
    return hour if span == ToolUse.Span.HOUR else hour.replace(hour=0)


# Months


def month_of(at: datetime) -> datetime:
    """Begin of the month, in UTC."""
    return start_of(ToolUse.Span.DAY, at.astimezone(UTC)).replace(day=1)


def calls_of_months(months: Collection[datetime]) -> dict[datetime, int]:
    """Calls in the sums of whole months; a month without any is left out."""
    rows = ToolUse.objects.filter(span=ToolUse.Span.MONTH, start__in=months)
    found: dict[datetime, int] = dict(
        rows.order_by().values_list("start").annotate(all=Sum("calls"))
    )
    return found


def build_months() -> Iterator[Mapping[str, int]]:
    """Sum up the months that are over and whose days have changed, one a step. Yields
    no figures of what it has done, as the runner of jobs takes them."""
    span, today = ToolUse.Span.DAY, month_of(timezone.now())
    days = ToolUse.objects.filter(span=span, start__lt=today).order_by()
    expected: Counter[datetime] = Counter()
    for start, calls in days.values_list("start").annotate(all=Sum("calls")):
        expected[month_of(start)] += calls
    found = calls_of_months(list(expected))
    for month, calls in expected.items():
        if found.get(month) != calls:
            _build_month(month)
            yield {}


@transaction.atomic
def _build_month(month: datetime) -> None:
    """Its rows are replaced: a tool's days are never fewer than they were."""
    following = month_of(month + timedelta(days=31))
    span = ToolUse.Span.DAY
    days = ToolUse.objects.filter(span=span, start__gte=month, start__lt=following)
    uses: dict[Key, ToolCallCount] = {}
    columns = ("name", "state", "blocking", *COUNTED)
    for row in days.values(*columns):
        named = (row["name"], row["state"], row["blocking"])
        uses.setdefault((ToolUse.Span.MONTH, month, *named), ToolCallCount()).add_row(
            row
        )
    _store(uses)


def uncounted() -> Any:
    calls = ToolCall.objects.filter(is_counted=False).order_by("pk")
    return with_output_size(calls)


def with_output_size(calls: Any) -> Any:
    """With the characters of each result as JSON, in the database; None for a list,
    which may have images, and for calls without a result."""
    text = Cast("output", TextField())
    is_list = Q(_output_text__startswith="[")
    size = Case(When(is_list, then=None), default=Length(text))
    return calls.alias(_output_text=text).annotate(output_size=size)


def newest_uncounted(
    since: datetime, until: datetime, most: int
) -> tuple[list[dict[str, Any]], bool]:
    """The calls of the period among the newest `most` that are not counted yet; True
    if there are more than `most`.

    The period is not part of the query: for a long one SQLite would read all of its
    calls by their time, instead of the few by the index on those that are not counted.
    """
    found = list(uncounted().order_by("-pk").values(*_FIELDS)[: most + 1])
    calls = [call for call in found[:most] if since <= call["created_at"] < until]
    return calls, len(found) > most


@transaction.atomic
def _count_batch() -> int:
    found = uncounted().filter(state__in=ToolCall.FINISHED)
    if connection.features.has_select_for_update:
        found = found.select_for_update()
    calls = list(found.values("pk", *_FIELDS)[:BATCH])
    added: dict[Key, ToolCallCount] = {}
    for call in calls:
        for span in (ToolUse.Span.HOUR, ToolUse.Span.DAY):
            start = start_of(span, call["created_at"])
            key = (span, start, call["name"], call["state"], call["blocking"])
            added.setdefault(key, ToolCallCount()).add(call)
    _write(added)
    pks = [call["pk"] for call in calls]
    ToolCall.objects.filter(pk__in=pks).update(is_counted=True)
    return len(calls)


def _write(added: Mapping[Key, ToolCallCount]) -> None:
    names = {key[2] for key in added}
    starts = {key[1] for key in added}
    stored = ToolUse.objects.filter(start__in=starts, name__in=names)
    columns = ("span", "start", "name", "state", "blocking")
    for row in stored.values(*columns, *COUNTED):
        if use := added.get(tuple(row[column] for column in columns)):
            use.add_row(row)
    _store(added)


def _store(uses: Mapping[Key, ToolCallCount]) -> None:
    columns = ("span", "start", "name", "state", "blocking")
    ToolUse.objects.bulk_create(
        [
            ToolUse(
                **dict(zip(columns, key, strict=True)),
                calls=use.calls,
                durations={str(number): n for number, n in use.durations.items()},
                last_at=use.last_at,
                output_tokens=use.output_tokens,
                sized=use.sized,
            )
            for key, use in uses.items()
        ],
        update_conflicts=True,
        unique_fields=columns,
        update_fields=COUNTED,
    )
