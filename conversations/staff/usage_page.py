"""What a page of usage shows: charts, sums and a row for each group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from conversations.staff.tool_usage import ToolUsage
from conversations.staff.usage_chart import (
    chart_token_classes,
    chart_tools,
    chart_usage,
)
from llm.pricing.usage_report import UsageGroup, UsageQuery, UsageReport

MAX_ROWS = 200  # groups of a page; the CSV file has all


@dataclass(frozen=True, slots=True)
class Row:
    group: UsageGroup
    address: str = ""  # of its calls


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
        "rows": [Row(group, link(group)) for group in shown],
        "shows_percentiles": any(row.waits.p50 is not None for row in shown),
        "shows_saved": bool(report.total.saved_cost),
        "hidden": len(report.groups) - len(shown),
    }


def page_of_tools(usage: ToolUsage, query: UsageQuery) -> dict[str, Any]:
    chart = chart_tools(usage, query.days)
    return {"tool_usage": usage, "charts": [chart] if chart else []}
