"""Links of the admin's lists to years, months and days.

Django's own `date_hierarchy` reads all rows for the periods that have some. This one
reads the first and the last row, and offers every period between them.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from datetime import date
from typing import Any

from django import template
from django.contrib.admin.views.main import ChangeList
from django.utils import formats, timezone
from django.utils.text import capfirst
from django.utils.translation import gettext as _

register = template.Library()


@register.inclusion_tag("admin/date_hierarchy.html")
def periods(cl: ChangeList) -> dict[str, Any]:
    name = str(cl.date_hierarchy)
    year, month, day = (
        _number(cl.params.get(f"{name}__{part}")) for part in ("year", "month", "day")
    )
    borders = _borders(cl, name)
    if borders is None:
        return {"show": False}
    first, last = borders

    def link(*parts: int) -> str:
        keys = (f"{name}__year", f"{name}__month", f"{name}__day")
        return cl.get_query_string(dict(zip(keys, parts, strict=False)), [f"{name}__"])

    if year and month:
        shown = [day] if day else range(1, monthrange(year, month)[1] + 1)
        days = [date(year, month, number) for number in shown]
        back = link(year, month) if day else link(year)
        title = _month_title(days[0]) if day else str(year)
        choices = [
            {
                "link": "" if day else link(year, month, each.day),
                "title": capfirst(formats.date_format(each, "MONTH_DAY_FORMAT")),
            }
            for each in days
            if day or first <= each <= last
        ]
    elif year:
        back, title = link(), _("All dates")
        choices = [
            {"link": link(year, each.month), "title": _month_title(each)}
            for each in _months(year)
            if first.replace(day=1) <= each <= last
        ]
    else:
        back = title = ""
        years = range(first.year, last.year + 1)
        choices = [{"link": link(each), "title": str(each)} for each in years]
    shown_back = {"link": back, "title": title} if back else None
    return {"show": True, "back": shown_back, "choices": choices}


def _borders(cl: ChangeList, name: str) -> tuple[date, date] | None:
    """The days of the oldest and the newest row of the table, None without rows. Two
    queries, of which each reads one entry of the index of column `name`."""
    rows = cl.model._default_manager.exclude(**{name: None})
    times = [
        rows.order_by(order).values_list(name, flat=True).first()
        for order in (name, f"-{name}")
    ]
    if None in times:
        return None
    first, last = (timezone.localtime(time).date() for time in times)
    return first, last


def _months(year: int) -> Iterator[date]:
    return (date(year, month, 1) for month in range(1, 13))


def _month_title(day: date) -> str:
    return capfirst(formats.date_format(day, "YEAR_MONTH_FORMAT"))


def _number(value: Any) -> int:
    """The number of a year, month or day in a query that the list has accepted."""
    [text] = value if isinstance(value, list) else [value]
    return int(text or 0)
