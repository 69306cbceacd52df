"""Calls of tools over a year: whole months are read from sums, which say the same."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.engine.maintenance.tool_call_counts import (
    build_months,
    count_calls,
    month_of,
)
from conversations.models import Conversation, ToolCall, Turn
from conversations.staff.tool_usage import ToolUsage, report_tools
from llm.wire.items import user_message
from tests.conversations.scene import a_user
from tools.models import ToolUse

pytestmark = pytest.mark.django_db


@pytest.fixture
def turn() -> Turn:
    row = Conversation.objects.create(owner=a_user("ada"))
    return row.open_turn([user_message("Hi")]).turn


@pytest.fixture
def month() -> date:
    """The first day of a month that is over."""
    return month_of(month_of(timezone.now()) - timedelta(days=40)).date()


def called(turn: Turn, day: date, name: str = "look", seconds: float = 1) -> None:
    at = datetime.combine(day, time(12), UTC)
    row = ToolCall.objects.create(
        turn=turn,
        call_id=f"c{ToolCall.objects.count()}",
        name=name,
        state="completed",
        started_at=at,
        ended_at=at + timedelta(seconds=seconds),
    )
    ToolCall.objects.filter(pk=row.pk).update(created_at=at)


def year() -> ToolUsage:
    today = timezone.now().astimezone(UTC).date()
    return report_tools(today - timedelta(days=364), today)


def figures(usage: ToolUsage) -> Any:
    tools = [(t.name, t.calls, t.p50, t.p95, dict(t.counts)) for t in usage.tools]
    return tools, {name: dict(days) for name, days in usage.by_day.items()}


def run(job: Any) -> int:
    return sum(1 for _ in job)


def test_months_say_the_same_as_their_days_and_are_what_is_read(turn, month):
    following = month_of(datetime.combine(month, time(), UTC) + timedelta(days=31))
    days = [month, month + timedelta(days=9), following.date() - timedelta(days=1)]
    days += [month - timedelta(days=1), following.date()]
    for number, day in enumerate(days):
        called(turn, day, seconds=number + 1)
        called(turn, day, name="send", seconds=9)
    run(count_calls())
    before = figures(year())
    assert run(build_months()) >= 1
    assert figures(year()) == before
    assert run(build_months()) == 0
    months = ToolUse.objects.filter(span=ToolUse.Span.MONTH, start__date=month)
    assert months.count() == 2
    with CaptureQueriesContext(connection) as captured:
        year()
    durations = [q["sql"] for q in captured if "durations" in q["sql"]]
    assert any("= 'm'" in sql for sql in durations)


def test_a_late_call_of_a_month_that_is_over_shows_at_once(turn, month):
    called(turn, month)
    run(count_calls())
    run(build_months())
    called(turn, month, seconds=7)
    for job in (count_calls, build_months):
        run(job())
        assert [tool.calls for tool in year().tools] == [2]
    assert ToolUse.objects.get(span=ToolUse.Span.MONTH).calls == 2


def test_a_period_within_a_month_is_read_by_day(turn, month):
    called(turn, month)
    called(turn, month + timedelta(days=3))
    run(count_calls())
    run(build_months())
    usage = report_tools(month + timedelta(days=1), month + timedelta(days=20))
    assert [tool.calls for tool in usage.tools] == [1]


def test_tokens_of_results_are_estimated_where_their_size_is_known(turn, month):
    for day in (month, timezone.now().astimezone(UTC).date()):
        called(turn, day)
        called(turn, day, name="draw")
        called(turn, day, name="send")
    picture = [{"type": "input_image", "image_url": "data:," + "x" * 4000}]
    for name, output in (("look", "word " * 80), ("draw", picture), ("send", None)):
        ToolCall.objects.filter(name=name).update(output=output)

    def tokens() -> dict[str, int | None]:
        return {tool.name: tool.output_tokens for tool in year().tools}

    expected = {"look": 2 * (402 // 4), "draw": None, "send": None}
    assert tokens() == expected  # read from the calls
    for job in (count_calls, build_months):
        run(job())
        assert tokens() == expected  # from days, then from months
    today = timezone.now().astimezone(UTC).date()
    own = report_tools(
        today - timedelta(days=364), today, user_id=turn.conversation.owner_id
    )
    assert {tool.name: tool.output_tokens for tool in own.tools} == expected


def test_the_page_and_the_file_have_them(turn, month, admin_client):
    called(turn, timezone.now().astimezone(UTC).date())
    ToolCall.objects.update(output="x" * 4000)
    page = admin_client.get("/admin/usage/", {"by": "tool"}).content.decode()
    assert "~1,000" in page
    file = admin_client.get("/admin/usage/csv/", {"by": "tool"}).content.decode()
    name, *figures = file.splitlines()[1].split(",")
    assert (name, figures[-1]) == ("look", "1000")
