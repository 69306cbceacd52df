"""Usage as CSV, as spreadsheets take it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from django.http import HttpResponse

from conversations.staff.csv_cells import quote_formula
from conversations.staff.tool_usage import ToolUsage
from llm.pricing.usage_report import Usage, UsageGroup, UsageReport

_COUNTS = [name for name in Usage.__slots__ if name not in ("waited", "wait_ms")]
_MONEY = ("cost", "saved_cost")
_TOOL_COLUMNS = (
    "tool",
    "calls",
    "pending",
    "error_rate",
    "p50",
    "p95",
    "estimated_output_tokens",
)


def usage_csv(report: UsageReport, *, costs: bool = True) -> HttpResponse:
    """A row for each group. Without `costs` their columns are empty."""
    query = report.query
    rows = (_row(group, costs) for group in report.groups)
    name = f"usage-{query.first}-{query.last}-by-{query.grouping}.csv"
    return _respond(name, (query.grouping, *_columns()), rows)


def tools_csv(usage: ToolUsage, days: str) -> HttpResponse:
    rows = (
        [
            tool.name,
            tool.calls,
            tool.pending,
            tool.error_rate,
            tool.p50,
            tool.p95,
            tool.output_tokens,
        ]
        for tool in usage.tools
    )
    return _respond(f"tools-{days}.csv", _TOOL_COLUMNS, rows)


def _columns() -> list[str]:
    return [*_COUNTS, "cache_rate", "error_rate", "ttft_mean", "ttft_p50", "ttft_p95"]


def _row(group: UsageGroup, costs: bool) -> list[Any]:
    values = group.usage.as_dict()
    counts = [
        None if name in _MONEY and not costs else values[name] for name in _COUNTS
    ]
    usage, waits = group.usage, group.waits
    return [
        group.name,
        *counts,
        usage.cache_rate,
        usage.error_rate,
        usage.mean_wait,
        waits.p50,
        waits.p95,
    ]


def _respond(
    name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> HttpResponse:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return HttpResponse(
        text.getvalue(),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:.12f}"
    if isinstance(value, float):
        return f"{value:.6f}"
    return quote_formula(value) if isinstance(value, str) else str(value)
