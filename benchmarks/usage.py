"""Reports of usage over a million model calls: time of page, file and API, and how
far sums differ from rows; then statistics of tools over as many calls of tools.

The calls of a year by 500 users, with 12 models, 100 tokens and 40 sets of tags are
written (`USAGE_CALLS` sets another number) and counted by the job. Where `DATABASE_URL`
names a database, those of an earlier run are used again. Figures are milliseconds of
CPU; over PostgreSQL, which works in another process, those of the clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.models import Count, Sum
from django.test import Client
from django.utils import timezone

from benchmarks.sql import numbers, read_clock, time_before_now
from benchmarks.table import show
from conversations.engine.maintenance import tool_call_counts
from conversations.models import Conversation, ToolCall, Turn
from conversations.staff.tool_statistics import PERIODS
from llm.models import ModelCall, UsageSum
from llm.pricing.usage_counting import LEVELS, TOKENS, count_all
from llm.pricing.usage_months import build_months
from llm.pricing.usage_report import GROUPINGS
from tools.models import ToolUse

CALLS = int(os.environ.get("USAGE_CALLS", "1000000"))
DAYS = 365
USERS = 500
REPEATED = 5  # the fastest counts: others disturb the slower ones

#: Numbers that look random and are the same in each run, and how long ago each was.
_NUMBERED = f"""
WITH RECURSIVE {numbers(CALLS)},
r AS (SELECT i, (i * 2654435761) % 4294967296 AS h,
    ({CALLS} - i) * {DAYS * 86400} / {CALLS} AS ago FROM n)
"""


def main() -> None:
    call_command("migrate", verbosity=0)
    settings.ALLOWED_HOSTS = ["testserver"]
    if not User.objects.filter(username="root").exists():
        _store_calls()
    for _ in build_months():
        pass
    _compare()
    client = Client()
    root = User.objects.get(username="root")
    client.force_login(root, settings.AUTHENTICATION_BACKENDS[-1])
    _time_all(client)
    client.force_login(
        User.objects.order_by("pk")[0], settings.AUTHENTICATION_BACKENDS[-1]
    )
    _time_own(client)
    if not ToolCall.objects.exists():
        _store_tool_calls(root)
    for _ in tool_call_counts.build_months():
        pass
    client.force_login(root, settings.AUTHENTICATION_BACKENDS[-1])
    _time_tools(client)


def _rows() -> str:
    return f"""
INSERT INTO llm_modelcall (turn_id, purpose, step, attempt, key_source, user_id,
    token_id, token_label, end_user, tags, our_request_id, client_request_id,
    provider_name, model_name, status, error_code, error_detail, finish_reason,
    input_tokens, cached_tokens, cache_write_tokens, cache_write_1h_tokens,
    output_tokens, reasoning_tokens, is_estimated, cost, is_cached, ttft, latency,
    request_id, response_id, degraded, is_counted, created_at)
{_NUMBERED}
SELECT '', CASE WHEN h % 9 = 0 THEN 'title' ELSE 'answer' END, 0, 1, 'shared',
    1 + h % {USERS}, CASE WHEN h % 3 = 0 THEN 1 + h % 100 END, '', '',
    CASE WHEN h % 4 = 0 THEN 'team:' || (h % 40) ELSE '' END, '', '',
    'Host ' || (h % 12 % 4), 'model-' || (h % 12),
    CASE WHEN h % 50 = 0 THEN 'failed' ELSE 'completed' END, '', '', 'stop',
    h % 20000, h % 5000, h % 300, h % 90, h % 2000, h % 700, h % 97 = 0,
    (h % 1000003) / 100000000.0, FALSE, 0.1 + (h % 4000) / 1000.0, 5.0, '', '', '[]',
    FALSE, {time_before_now("ago")}
FROM r
"""


def _tool_rows(turn: Turn) -> str:
    """Of twelve tools, a year long."""
    return f"""
INSERT INTO conversations_toolcall (turn_id, call_id, name, state, blocking, attempts,
    error, started_at, ended_at, created_at, epoch, claims, cancel_requested, progress,
    token, is_counted)
{_NUMBERED}
SELECT '{turn.pk}', 'call_' || i, 'tool_' || (h % 12),
    CASE WHEN h % 40 = 0 THEN 'failed' ELSE 'completed' END, TRUE, 1, '',
    {time_before_now("ago")}, {time_before_now("ago - (h % 9000) / 1000.0")},
    {time_before_now("ago")}, 0, 0, FALSE, '', '', FALSE
FROM r
"""


def _store_tool_calls(root: User) -> None:
    turn = Turn.objects.create(conversation=Conversation.objects.create(owner=root))
    with connection.cursor() as cursor:
        cursor.execute(_tool_rows(turn))
    began = time.perf_counter()
    for _ in tool_call_counts.count_calls():
        pass
    took = time.perf_counter() - began
    show(
        f"Counting {CALLS:,} tool calls",
        ["seconds", "calls/s", "rows of counts"],
        [[took, CALLS / took, ToolUse.objects.count()]],
    )


def _time_tools(client: Client) -> None:
    last = timezone.localdate()
    first = last - timedelta(days=DAYS - 1)
    year = {"by": "tool", "first": f"{first}", "last": f"{last}"}
    statistics = "/admin/conversations/toolcall/statistics/"
    rows = [
        [period, _time(lambda p=period: client.get(statistics, {"period": p}))]
        for period in PERIODS
    ]
    rows.append(["usage of a year", _time(lambda: client.get("/admin/usage/", year))])
    show(f"Statistics of tools, {CALLS:,} calls, ms", ["period", "page"], rows)


def _store_calls() -> None:
    User.objects.bulk_create(User(username=f"user{number}") for number in range(USERS))
    with connection.cursor() as cursor:
        cursor.execute(_rows())
    began = time.perf_counter()
    for _ in count_all():
        pass
    took = time.perf_counter() - began
    show(
        f"Counting {CALLS:,} model calls",
        ["seconds", "calls/s", "sums", "of it read by reports of everybody"],
        [
            [
                took,
                CALLS / took,
                UsageSum.objects.count(),
                UsageSum.objects.exclude(level="").count(),
            ]
        ],
    )
    User.objects.create_superuser("root")


def _compare() -> None:
    """Raises RuntimeError where a sum differs from its rows by more than 1e-6."""
    sums: dict[str, Any] = {name: Sum(name) for name in (*TOKENS, "cost")}
    rows = ModelCall.objects.aggregate(all=Count("pk"), **sums)
    most = Decimal(0)
    for level in LEVELS:
        found = UsageSum.objects.filter(level=level).aggregate(all=Sum("calls"), **sums)
        for name, value in found.items():
            most = max(most, abs(Decimal(value) - Decimal(rows[name])))
    if most > Decimal("0.000001"):
        raise RuntimeError(f"Sums differ from rows by {most}.")
    print(f"Sums of all levels equal the rows; the largest difference is {most:.1e}.")


def _time_all(client: Client) -> None:
    today = timezone.localdate()
    first = today - timedelta(days=DAYS - 1)
    rows = []
    for grouping in GROUPINGS:
        query = {"by": grouping, "first": f"{first}", "last": f"{today}"}
        rows.append(
            [
                grouping,
                _time(lambda q=query: client.get("/admin/usage/", {"by": q["by"]})),
                _time(lambda q=query: client.get("/admin/usage/", q)),
                _time(lambda q=query: client.get("/admin/usage/csv/", q)),
                _time(lambda q=query: client.get("/api/usage/all/", q)),
            ]
        )
    columns = ["by", "page, 30 days", "page, a year", "CSV, a year", "REST, a year"]
    show(f"Everybody's usage, {CALLS:,} calls, ms", columns, rows)


def _time_own(client: Client) -> None:
    first = timezone.localdate() - timedelta(days=DAYS - 1)
    rows = [
        [
            grouping,
            _time(
                lambda q={"by": grouping, "first": f"{first}"}: client.get(
                    "/settings/usage/", q
                )
            ),
        ]
        for grouping in ("model", "token", "tag", "day")
    ]
    show(f"One's own usage, {CALLS // USERS:,} calls, ms", ["by", "page"], rows)


def _time(request: Callable[[], Any]) -> float:
    """Milliseconds of CPU, which other processes do not disturb, or of the clock."""
    times = []
    for _ in range(REPEATED):
        began = read_clock()
        response = request()
        times.append(1000 * (read_clock() - began))
        if response.status_code != 200:
            raise RuntimeError(f"{response.status_code}: {response.content[:200]!r}")
    return min(times)
