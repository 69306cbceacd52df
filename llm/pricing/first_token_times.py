"""Times to the first token over a period, from counts of ranges of such times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from django.db.models import Sum

from llm.models import FirstTokenCount
from llm.pricing.usage_counting import seconds_of

Counts = Mapping[int, int]
_COLUMNS: Mapping[str, Sequence[str]] = {
    "day": ("day",),
    "provider": ("provider_name",),
    "model": ("provider_name", "model_name"),
}


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds to the first token."""

    p50: float | None = None
    p95: float | None = None


UNKNOWN_WAITS = Waits()


def count_first_tokens(first: date, last: date, grouping: str) -> dict[str, Counts]:
    """Everybody's calls by the name of the group, or of no group."""
    columns = _COLUMNS.get(grouping, ())
    rows = FirstTokenCount.objects.filter(day__range=(first, last))
    found: dict[str, dict[int, int]] = defaultdict(dict)
    counted = rows.order_by().values(*columns, "step").annotate(all=Sum("calls"))
    for row in counted:
        name = "/".join(str(row[each]) for each in columns)
        # Names of two models may be the same text.
        counts = found[name]
        counts[row["step"]] = counts.get(row["step"], 0) + row["all"]
    return dict(found)


def merge_counts(counts: Iterable[Counts]) -> dict[int, int]:
    merged: dict[int, int] = defaultdict(int)
    for each in counts:
        for step, calls in each.items():
            merged[step] += calls
    return merged


def waits_of(counts: Counts) -> Waits:
    return Waits(_percentile(counts, 50), _percentile(counts, 95))


def _percentile(counts: Counts, percent: int) -> float | None:
    """By nearest rank; right to 5 %, as the counts are of ranges."""
    total = sum(counts.values())
    rank, seen = -(-total * percent // 100), 0
    for step in sorted(counts):
        seen += counts[step]
        if seen >= rank:
            return seconds_of(step)
    return None
