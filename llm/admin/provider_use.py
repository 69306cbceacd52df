"""A small chart of a provider's calls by day, for its page."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta
from typing import Any

from django.db.models import Sum
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from llm.models import Provider, UsageSum
from llm.pricing.dollars import format_dollars
from llm.pricing.recorded_names import recorded_names
from llm.pricing.usage_counting import catch_up

DAYS = 30
STEP, HEIGHT, THINNEST = 8, 36, 2  # pixels of a day's column
_Counts = dict[str, Any]


def recent_use(provider: Provider) -> SafeString:
    """Calls and failures by day, their sum and cost, and a link to the usage by day."""
    catch_up()
    last = timezone.localdate()
    days = [last - timedelta(days=back) for back in reversed(range(DAYS))]
    names = recorded_names(provider, days[0], last)
    by_day = _counts(names, days[0], last)
    calls = sum(each["calls"] for each in by_day.values())
    if not calls:
        return format_html("{}", _("No calls in the last 30 days."))
    failed = sum(each["failed"] for each in by_day.values())
    cost = sum(each["cost"] for each in by_day.values())
    is_more = any(each["unpriced"] for each in by_day.values())
    values = {
        "calls": number_format(calls, force_grouping=True),
        "failed": number_format(failed, force_grouping=True),
        "cost": ("≥" if is_more else "") + format_dollars(cost),
    }
    text = _("30 days: %(calls)s calls, %(failed)s failed, %(cost)s") % values
    period = {"first": days[0].isoformat(), "last": last.isoformat(), "by": "provider"}
    return format_html(
        '{} <a href="{}?{}">{}</a>',
        _draw(days, by_day, text),
        reverse("admin:usage"),
        urlencode(period),
        text,
    )


def _counts(names: Collection[str], first: date, last: date) -> dict[date, _Counts]:
    rows = UsageSum.objects.filter(
        level=UsageSum.Level.MODEL, day__range=(first, last), provider_name__in=names
    )
    counts = ("calls", "failed", "cost", "unpriced")
    sums = {f"sum_{name}": Sum(name) for name in counts}
    found: Any = rows.order_by().values("day").annotate(**sums)
    return {row["day"]: {name: row[f"sum_{name}"] for name in counts} for row in found}


def _draw(days: list[date], by_day: dict[date, _Counts], text: str) -> SafeString:
    most = max(each["calls"] for each in by_day.values())
    parts = []
    for number, day in enumerate(days):
        if counts := by_day.get(day):
            title = f"{day}: {counts['calls']} / {counts['failed']}"
            for name in ("calls", "failed"):
                height = _height(counts[name], most)
                left = number * STEP
                parts.append((name, left, HEIGHT - height, STEP - 1, height, title))
    column = (
        '<rect class="use-{}" x="{}" y="{}" width="{}" height="{}">'
        "<title>{}</title></rect>"
    )
    return format_html(
        '<svg class="recent-use" role="img" aria-label="{}" width="{}" height="{}">'
        "{}</svg>",
        text,
        DAYS * STEP,
        HEIGHT,
        format_html_join("", column, parts),
    )


def _height(count: int, most: int) -> int:
    return max(THINNEST, round(HEIGHT * count / most)) if count else 0
