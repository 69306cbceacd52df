"""Compare a vendor's bill with our own figures, by day and model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db.models import Sum
from django.db.models.functions import TruncDate
from django.utils.translation import gettext as _

from llm.models import ModelCall, Provider, UsageSum
from llm.pricing.recorded_names import recorded_names
from llm.pricing.usage_counting import catch_up
from llm.pricing.usage_report import MAX_DAYS
from llm.pricing.vendor_bill import MEASURES, Bill, BillError, Figures, normal_name

TOLERANCE = Decimal("0.01")  # of the larger figure
_OF_PEOPLE = ("own", "call")  # sources of keys that people bring


@dataclass(frozen=True, slots=True)
class Mismatch:
    day: date
    model: str
    measure: str
    billed: Decimal
    counted: Decimal

    @property
    def difference(self) -> Decimal:
        """Share by which the counted cost is above the bill; 1 if the bill is zero."""
        whole = self.billed or self.counted
        return (self.counted - self.billed) / abs(whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    bill: Bill
    first: date
    last: date
    compared: int  # days and models
    mismatches: Sequence[Mismatch]
    totals: Sequence[tuple[str, Decimal, Decimal]]  # measure, billed, counted
    is_complete: bool  # False while calls wait to be counted


def reconcile(bill: Bill, provider: Provider) -> Reconciliation:
    """What differs by more than `TOLERANCE`. Raises BillError."""
    first, last = bill.days
    if (last - first).days >= MAX_DAYS:
        text = _("The file has more than %(limit)s days.") % {"limit": MAX_DAYS}
        raise BillError(text)
    is_complete = catch_up()
    # A day more on each side: the sums' days are those of the server's time zone.
    day = timedelta(days=1)
    names = recorded_names(provider, first - day, last + day)
    own = _own_figures(names, first, last)
    keys = sorted({*bill.figures, *own})
    mismatches = [
        Mismatch(*key, measure, billed, counted)
        for key in keys
        for measure in bill.measures
        if _differ(
            billed := _figure(bill.figures, key, measure),
            counted := _figure(own, key, measure),
        )
    ]
    totals = [
        (
            measure,
            sum((_figure(bill.figures, key, measure) for key in keys), Decimal(0)),
            sum((_figure(own, key, measure) for key in keys), Decimal(0)),
        )
        for measure in bill.measures
    ]
    return Reconciliation(
        bill=bill,
        first=first,
        last=last,
        compared=len(keys),
        mismatches=mismatches,
        totals=totals,
        is_complete=is_complete,
    )


def _differ(one: Decimal, other: Decimal) -> bool:
    return abs(one - other) > TOLERANCE * max(abs(one), abs(other))


def _figure(
    found: Mapping[tuple[date, str], Figures], key: tuple[date, str], measure: str
) -> Decimal:
    return found.get(key, {}).get(measure, Decimal(0))


def _own_figures(
    names: Collection[str], first: date, last: date
) -> dict[tuple[date, str], Figures]:
    """By day of UTC, as vendors count, without the calls that people paid for with
    their own keys, which are in other bills."""
    begin = datetime.combine(first, time.min, UTC)
    end = datetime.combine(last + timedelta(days=1), time.min, UTC)
    calls = ModelCall.objects.filter(created_at__gte=begin, created_at__lt=end)
    calls = calls.filter(provider_name__in=names)
    of_people = calls.filter(key_source__in=_OF_PEOPLE)
    if not _counts_in_utc(begin, end):
        # The sums' days are others; of the calls themselves, older ones are erased.
        return _sum_calls(calls.exclude(key_source__in=_OF_PEOPLE))
    rows = UsageSum.objects.filter(
        level=UsageSum.Level.MODEL, day__range=(first, last), provider_name__in=names
    )
    found = _add_up(rows.values("day", "model_name"))
    for key, figures in _sum_calls(of_people).items():
        for name, value in figures.items():
            counted = found.setdefault(key, {})
            counted[name] = max(counted.get(name, Decimal(0)) - value, Decimal(0))
    return found


def _counts_in_utc(begin: datetime, end: datetime) -> bool:
    """Whether the server's days are those of UTC, by whatever name of the zone."""
    zone, none = ZoneInfo(settings.TIME_ZONE), timedelta(0)
    days = range((end - begin).days + 1)
    moments = (begin + timedelta(days=day) for day in days)
    return all(each.astimezone(zone).utcoffset() == none for each in moments)


def _sum_calls(calls: Any) -> dict[tuple[date, str], Figures]:
    dated = calls.annotate(day=TruncDate("created_at", tzinfo=UTC))
    return _add_up(dated.values("day", "model_name"))


def _add_up(rows: Any) -> dict[tuple[date, str], Figures]:
    sums = {f"sum_{name}": Sum(name) for name in MEASURES}
    found: dict[tuple[date, str], Figures] = defaultdict(dict)
    for row in rows.order_by().annotate(**sums):
        figures = found[row["day"], normal_name(row["model_name"])]
        for name in MEASURES:
            value = Decimal(row[f"sum_{name}"] or 0)
            figures[name] = figures.get(name, Decimal(0)) + value
    return dict(found)
