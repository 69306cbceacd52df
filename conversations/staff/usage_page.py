"""What a page of usage shows: charts, sums and a row for each group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from conversations.staff.expensive_conversations import MAX_CALLS
from conversations.staff.tool_usage import ToolUsage
from conversations.staff.usage_chart import (
    chart_token_classes,
    chart_tools,
    chart_usage,
)
from llm.pricing.usage_report import UsageGroup, UsageQuery, UsageReport

MAX_ROWS = 200  # groups of a page; the CSV file has all


@dataclass(frozen=True, slots=True)
class UsageRow:
    group: UsageGroup
    address: str = ""  # of its calls
    label: str = ""  # in place of the group's name


def page_of_usage(
    report: UsageReport,
    measure: str,
    link: Callable[[UsageGroup], str] = lambda group: "",
) -> dict[str, Any]:
    titles = {
        "cost": _("Cost by day"),
        "tokens": _("Tokens by day"),
        "calls": _("Calls by day"),
        "failed": _("Failed calls by day"),
    }
    shown = report.groups[:MAX_ROWS]
    charts = [
        chart_usage(report, measure, titles[measure]),
        chart_token_classes(report),
    ]
    return {
        "report": report,
        "charts": [chart for chart in charts if chart],
        "rows": [UsageRow(group, link(group)) for group in shown],
        "shows_percentiles": any(row.waits.p50 is not None for row in shown),
        "shows_saved": bool(report.total.saved_cost),
        "shows_hour": bool(report.total.cache_write_1h_tokens),
        "hidden": len(report.groups) - len(shown),
    }


def page_of_conversations(
    report: UsageReport,
    is_cut: bool,
    measure: str,
    links: Mapping[str, tuple[str, str]],
) -> dict[str, Any]:
    """`links`: text and address by id; others show their id."""
    page = page_of_usage(report, measure)
    rows = []
    for row in page["rows"]:
        text, address = links.get(row.group.name, (row.group.name, ""))
        rows.append(UsageRow(row.group, address, text))
    return {**page, "rows": rows, "newest_calls": MAX_CALLS if is_cut else 0}


def page_of_tools(usage: ToolUsage, query: UsageQuery) -> dict[str, Any]:
    chart = chart_tools(usage, query.days)
    return {"tool_usage": usage, "charts": [chart] if chart else []}
