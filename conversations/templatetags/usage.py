"""Template filters of the pages of usage."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django import template
from django.utils.formats import number_format
from django.utils.translation import gettext_lazy as _

register = template.Library()

_MEASURES: Mapping[str, Any] = {
    "input_tokens": _("input tokens"),
    "cached_tokens": _("input tokens from a cache"),
    "output_tokens": _("output tokens"),
    "cost": _("cost"),
}


@register.filter
def count(value: int) -> str:
    """With the language's separators."""
    return number_format(value, use_l10n=True, force_grouping=True)


@register.filter
def percent(value: float | Decimal | None) -> str:
    if value is None:
        return "–"
    return f"{number_format(100 * value, 1)}\N{NO-BREAK SPACE}%"


@register.filter
def seconds_or_dash(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{number_format(value, 2)}\N{NO-BREAK SPACE}s"


@register.filter
def measure_name(measure: str) -> str:
    return str(_MEASURES[measure])


@register.filter
def amount(value: Decimal, measure: str) -> str:
    places = 4 if measure == "cost" else 0
    text = number_format(value, places, force_grouping=True)
    return f"${text}" if measure == "cost" else text
