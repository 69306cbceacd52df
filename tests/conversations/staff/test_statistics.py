from __future__ import annotations

import html
import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from conversations.engine.maintenance.tool_call_counts import count_calls
from conversations.models import Conversation, ToolCall
from conversations.staff import tool_statistics
from conversations.staff.tool_statistics import PERIODS, report, report_all
from llm.wire.items import user_message
from tests.conversations.scene import a_user, program, signed_in, staff
from tools.models import Tool

pytestmark = pytest.mark.django_db
PAGE = reverse("admin:conversations_toolcall_statistics")


def a_turn(owner):
    return Conversation.objects.create(owner=owner).open_turn([user_message("Hi")]).turn


def called(
    turn,
    name="look",
    *,
    seconds=None,
    state="completed",
    ago=timedelta(),
    blocking=True,
):
    number = ToolCall.objects.count()
    start = timezone.now() - ago - timedelta(seconds=seconds or 0)
    row = ToolCall.objects.create(
        turn=turn,
        call_id=f"c{number}",
        name=name,
        state=state,
        blocking=blocking,
        started_at=start,
        ended_at=None if seconds is None else start + timedelta(seconds=seconds),
    )
    ToolCall.objects.filter(pk=row.pk).update(created_at=timezone.now() - ago)
    return row


@pytest.fixture
def ada():
    return a_user("ada")


@pytest.fixture
def turn(ada):
    return a_turn(ada)


class PercentilesTest(TestCase):
    @given(st.lists(st.integers(0, 10_000), min_size=1, max_size=25))
    def test_a_percentile_is_the_value_of_its_rank(self, times: list[int]):
        turn = a_turn(a_user("percy"))
        for ms in times:
            called(turn, seconds=ms / 1000)
        (tool,) = report(ToolCall.objects.all(), "24h").tools
        ranked = sorted(times)
        for percent, value in ((50, tool.p50), (95, tool.p95)):
            rank = -(-len(times) * percent // 100)
            assert value == pytest.approx(ranked[rank - 1] / 1000)


def test_calls_are_counted_by_tool_and_state(turn):
    called(turn, seconds=1)
    called(turn, seconds=3, state="failed")
    called(turn, seconds=100, state="cancelled")
    called(turn, state="executing")
    called(turn, "other", state="awaiting_approval")
    look, other = report(ToolCall.objects.all(), "24h").tools
    assert look.counts == {"completed": 1, "failed": 1, "cancelled": 1, "executing": 1}
    assert (look.calls, look.error_rate) == (4, 0.5)
    # Stopped by a person after 100 s: no fact about the tool.
    assert (look.p50, look.p95) == (1, 3)
    assert [state for state, _, _ in look.by_state] == [
        "executing",
        "completed",
        "failed",
        "cancelled",
    ]
    assert (other.error_rate, other.p50) == (None, None)


def test_calls_are_divided_by_whether_the_model_waits(turn, admin_client):
    called(turn, seconds=1)
    called(turn, state="pending")
    called(turn, seconds=9, blocking=False)
    called(turn, state="executing", blocking=False)
    (look,) = report(ToolCall.objects.all(), "24h").tools
    assert (look.calls, look.blocking, look.non_blocking) == (4, 2, 2)
    assert (look.pending, look.pending_non_blocking) == (2, 1)
    assert look.counts == {"completed": 2, "pending": 1, "executing": 1}
    text = " ".join(html.unescape(admin_client.get(PAGE).content.decode()).split())
    assert "<td> 2 (1 in the background) </td>" in text


@pytest.mark.parametrize(
    ("period", "names"),
    [("24h", ["a"]), ("7d", ["a", "b"]), ("30d", ["a", "b", "c"])],
)
def test_only_the_period_counts(turn, period, names):
    for name, days in (("a", 0.5), ("b", 3), ("c", 20), ("d", 40)):
        called(turn, name, seconds=1, ago=timedelta(days=days))
    found = report(ToolCall.objects.all(), period)
    assert [tool.name for tool in found.tools] == names
    assert not found.is_cut


def test_only_the_newest_calls_are_looked_at(turn, monkeypatch):
    monkeypatch.setattr(tool_statistics, "MAX_CALLS", 2)
    for name in ("a", "b", "c"):
        called(turn, name, seconds=1)
    found = report(ToolCall.objects.all(), "24h")
    assert [tool.name for tool in found.tools] == ["b", "c"]
    assert found.is_cut


def test_the_number_of_queries_does_not_grow(turn):
    for name in "abcdefgh":
        called(turn, name, seconds=1)
    with CaptureQueriesContext(connection) as queries:
        report(ToolCall.objects.all(), "24h")
    assert len(queries) <= 5


# The page


def test_the_page_shows_them_by_tool(admin_client, turn):
    called(turn, "look", seconds=0.25)
    called(turn, "look", seconds=0.25, state="timed_out")
    text = html.unescape(admin_client.get(PAGE).content.decode())
    assert "look" in text
    assert re.search(r"0\.25\d s", text)  # within a hundredth
    assert "50 %" in text
    assert "timed out: 1" in text
    for period in (*PERIODS, "nonsense"):
        assert admin_client.get(PAGE, {"period": period}).status_code == 200


def test_users_without_permission_see_only_their_own_calls(turn):
    called(turn, "adas", seconds=1)
    eve = staff("eve", "view_toolcall")
    called(a_turn(eve), "eves", seconds=1)
    text = signed_in(eve).get(PAGE).content.decode()
    assert "eves" in text
    assert "adas" not in text
    all_of_it = signed_in(staff("ida", "inspect_turn")).get(PAGE).content.decode()
    assert "adas" in all_of_it
    assert signed_in(staff("nobody")).get(PAGE).status_code == 403


def test_both_lists_lead_to_it(admin_client):
    for model in ("conversations_toolcall", "tools_tool"):
        text = admin_client.get(reverse(f"admin:{model}_changelist")).content.decode()
        assert PAGE in text


# The API


def tools_of(user, **query):
    answer = program(user).get("/api/tools/", query)
    assert answer.status_code == 200, answer.content
    return {tool["name"]: tool for tool in answer.json()["data"]}


def test_a_user_sees_the_tools_they_may_use(ada):
    Tool.objects.filter(name="calculator").update(approval="first", blocking=False)
    hidden = Tool.objects.get(name="weather_demo")
    hidden.groups.add(Group.objects.create(name="cooks"))
    Tool.objects.create(
        name="web", label="Web", kind="hosted", definition={"type": "web_search"}
    )
    tools = tools_of(ada)
    assert "weather_demo" not in tools
    calculator = tools["calculator"]
    assert (calculator["blocking"], calculator["approval"]) == (False, "first")
    assert calculator["kind"] == "python"
    assert calculator["parameters"]["required"] == ["expression"]
    assert "statistics" not in calculator
    web = tools["web"]
    assert (web["label"], web["kind"], web["parameters"]) == ("Web", "hosted", None)


def test_figures_cover_own_calls_or_all_calls_with_permission(ada, turn):
    called(turn, "calculator", seconds=2)
    called(a_turn(a_user("eve")), "calculator", seconds=4, state="failed")
    own = tools_of(ada, statistics="7d")["calculator"]["statistics"]
    assert (own["calls"], own["error_rate"], own["p50"]) == (1, 0.0, 2.0)
    every = tools_of(staff("ida", "inspect_turn"), statistics="24h")
    assert every["calculator"]["statistics"]["counts"] == {"completed": 1, "failed": 1}
    never = every["current_time"]["statistics"]
    assert (never["calls"], never["error_rate"], never["last_at"]) == (0, None, None)


@pytest.mark.parametrize("period", ["", "1y"])
def test_an_unknown_period_is_refused(ada, period):
    answer = program(ada).get("/api/tools/", {"statistics": period})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "statistics"


# Counts by hour and day


def count() -> int:
    return sum(sum(step.values()) for step in count_calls())


class CountsTest(TestCase):
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["look", "write"]),
                st.sampled_from(ToolCall.State.values),
                st.booleans(),
                st.integers(0, 90_000),  # milliseconds
                st.booleans(),  # whether calls are counted after this one
            ),
            max_size=12,
        )
    )
    def test_counts_equal_the_rows_at_any_time(self, calls):
        turn = a_turn(a_user("conny"))
        for name, state, blocking, ms, is_counted_then in calls:
            called(turn, name, state=state, blocking=blocking, seconds=ms / 1000)
            if is_counted_then:
                count()
        found = {tool.name: tool for tool in report_all("7d").tools}
        rows = {tool.name: tool for tool in report(ToolCall.objects.all(), "7d").tools}
        assert found.keys() == rows.keys()
        for name, tool in found.items():
            assert tool.counts == rows[name].counts
            assert tool.background_counts == rows[name].background_counts
            assert tool.last_at == rows[name].last_at
            for ours, exact in (
                (tool.p50, rows[name].p50),
                (tool.p95, rows[name].p95),
            ):
                assert (ours is None) == (exact is None)
                assert abs((ours or 0) - (exact or 0)) <= 0.011 * (exact or 0) + 0.001


def test_a_call_is_counted_once_and_only_after_it_has_ended(turn):
    running = called(turn, state="executing")
    called(turn, seconds=1)
    assert (count(), count()) == (1, 0)
    (look,) = report_all("24h").tools
    assert look.counts == {"completed": 1, "executing": 1}
    ToolCall.objects.filter(pk=running.pk).update(state="failed")
    assert count() == 1
    (look,) = report_all("24h").tools
    assert look.counts == {"completed": 1, "failed": 1}


@pytest.mark.parametrize(
    ("period", "names"),
    [("24h", ["a"]), ("7d", ["a", "b"]), ("30d", ["a", "b", "c"])],
)
@pytest.mark.parametrize("is_counted", [False, True])
def test_only_the_period_is_summed_up(turn, period, names, is_counted):
    for name, days in (("a", 0.5), ("b", 3), ("c", 20), ("d", 40)):
        called(turn, name, seconds=1, ago=timedelta(days=days))
    if is_counted:
        count()
    assert [tool.name for tool in report_all(period).tools] == names


def test_what_was_counted_stays_when_its_conversation_is_erased(turn):
    called(turn, seconds=1)
    count()
    turn.conversation.delete()
    assert [tool.calls for tool in report_all("24h").tools] == [1]


def test_the_page_reads_no_call_that_is_counted(turn, admin_client):
    for number in range(30):
        called(turn, f"t{number}", seconds=1)
    count()
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(PAGE).content.decode()
    assert "t29" in page
    read = [q["sql"] for q in queries if 'FROM "conversations_toolcall"' in q["sql"]]
    assert len(read) == 1
    assert 'NOT "conversations_toolcall"."is_counted"' in read[0]


def test_staff_without_inspection_see_only_the_counts_of_their_own_calls(turn):
    called(turn, "of_ada", seconds=1)
    count()
    person = staff("few", "view_toolcall")
    called(a_turn(person), "of_few", seconds=1)
    count()
    page = signed_in(person).get(PAGE).content.decode()
    assert "of_few" in page
    assert "of_ada" not in page
