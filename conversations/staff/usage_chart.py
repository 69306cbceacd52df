"""Charts of usage: a column for each day, stacked by group or by class of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from conversations.staff.tool_usage import ToolUsage
from llm.pricing.dollars import format_dollars
from llm.pricing.usage_report import (
    MAX_SERIES,
    Usage,
    UsageReport,
    sum_first_groups,
)

WIDTH, HEIGHT = 1000, 200  # in the chart's own units
THINNEST = 1.5  # a small value is seen as well

Series = Mapping[str, Mapping[date, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageChart:
    title: str
    most: str  # the highest column's value
    first: date
    last: date
    paths: Sequence[tuple[int, str, str]]  # number, name and drawing of each series
    days: SafeString  # over the columns: what each of them amounts to
    width: int = WIDTH
    height: int = HEIGHT


def chart_usage(report: UsageReport, measure: str, title: str) -> UsageChart | None:
    """By group, where groups divide the calls; None without any."""
    value, counts = _MEASURES[measure]
    days = report.query.days
    series = {
        name: {day: value(usage) for day, usage in found.items()}
        for name, found in sum_first_groups(report, counts).items()
    }
    rest = {
        day: value(usage) - sum(each.get(day, 0) for each in series.values())
        for day, usage in report.by_day
    }
    if any(each > 1e-9 for each in rest.values()):
        series[_("others") if series else _("all")] = rest
    return _draw(days, series, title, format_dollars if measure == "cost" else short)


def chart_token_classes(report: UsageReport) -> UsageChart | None:
    """Classes that overlap nowhere: together they are all tokens."""
    classes: dict[str, Callable[[Usage], float]] = {
        _("input"): lambda u: max(
            0, u.input_tokens - u.cached_tokens - u.cache_write_tokens
        ),
        _("input from a cache"): lambda u: u.cached_tokens,
        _("input into a cache"): lambda u: max(
            0, u.cache_write_tokens - u.cache_write_1h_tokens
        ),
        _("input into a cache for an hour"): lambda u: u.cache_write_1h_tokens,
        _("output"): lambda u: max(0, u.output_tokens - u.reasoning_tokens),
        _("reasoning"): lambda u: u.reasoning_tokens,
    }
    series = {
        name: {day: value(usage) for day, usage in report.by_day}
        for name, value in classes.items()
    }
    used = {name: days for name, days in series.items() if any(days.values())}
    return _draw(report.query.days, used, _("Tokens by class"), short)


def chart_tools(usage: ToolUsage, days: Sequence[date]) -> UsageChart | None:
    names = [tool.name for tool in usage.tools]
    series: dict[str, Mapping[date, float]] = {
        name: dict(usage.by_day[name]) for name in names[:MAX_SERIES]
    }
    if rest := names[MAX_SERIES:]:
        series[_("others")] = {
            day: sum(usage.by_day[name].get(day, 0) for name in rest) for day in days
        }
    return _draw(days, series, _("Calls of tools by day"), short)


def _draw(
    days: Sequence[date], series: Series, title: str, shown: Callable[[float], str]
) -> UsageChart | None:
    totals = [sum(each.get(day, 0) for each in series.values()) for day in days]
    most = max(totals, default=0)
    if most <= 0:
        return None
    step = WIDTH / len(days)
    stacks = [
        _stack([each.get(day, 0) for each in series.values()], most) for day in days
    ]
    return UsageChart(
        title=title,
        most=shown(most),
        first=days[0],
        last=days[-1],
        paths=[
            (number, name, _path([stack[number] for stack in stacks], step))
            for number, name in enumerate(series)
        ],
        days=format_html_join(
            "",
            '<rect x="{}" width="{}" height="{}"><title>{}: {}</title></rect>',
            (
                (f"{number * step:.2f}", f"{step:.2f}", HEIGHT, day, shown(total))
                for number, (day, total) in enumerate(zip(days, totals, strict=True))
                if total > 0
            ),
        ),
    )


def _stack(values: Sequence[float], most: float) -> list[tuple[float, float]]:
    """Upper edge and height of each value, one upon the other."""
    edges, top = [], float(HEIGHT)
    for value in values:
        height = max(THINNEST, HEIGHT * value / most) if value > 0 else 0.0
        top = max(0.0, top - height)
        edges.append((top, height))
    return edges


def _path(edges: Sequence[tuple[float, float]], step: float) -> str:
    return "".join(
        f"M{(number + 0.1) * step:.2f} {top:.2f}h{0.8 * step:.2f}v{height:.2f}"
        f"h{-0.8 * step:.2f}z"
        for number, (top, height) in enumerate(edges)
        if height
    )


def short(value: float) -> str:
    """1,234,567 as 1.2M."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:,.0f}"


#: Each with the counts that it needs.
_MEASURES: Mapping[str, tuple[Callable[[Usage], float], Sequence[str]]] = {
    "cost": (lambda usage: float(usage.cost), ["cost"]),
    "tokens": (lambda usage: usage.tokens, ["input_tokens", "output_tokens"]),
    "calls": (lambda usage: usage.calls, ["calls"]),
    "failed": (lambda usage: usage.failed, ["failed"]),
}
