"""The status command, page and buttons, over real rows."""

from __future__ import annotations

import html
import io
import json
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from conversations.engine import claim_store, lease_store, staff_actions, turn_store
from conversations.engine.event_log import StaleEpoch
from conversations.engine.progress_store import TurnProgress
from conversations.models import Conversation, ProcessStatus, Question, ToolCall, Turn
from conversations.staff.engine_status import status
from llm.wire.items import user_message
from tests.conversations.scene import a_user, signed_in, staff

pytestmark = pytest.mark.django_db
PAGE = reverse("admin:conversations_engine")
SECRET_TEXT = "a secret of mine"
DELIVERY = "scaled" if settings.IS_SCALED else "embedded"


def ago(seconds: float):
    return timezone.now() - timedelta(seconds=seconds)


@pytest.fixture
def conversation():
    return Conversation.objects.create(owner=a_user("ada"), title=SECRET_TEXT)


@pytest.fixture
def turn(conversation):
    return conversation.open_turn([user_message(SECRET_TEXT)]).turn


def become(turn, **fields):
    Turn.objects.filter(pk=turn.pk).update(**fields)


def runs(turn, *, left: float = 5, **fields):
    become(turn, status="in_progress", lease_until=ago(-left), epoch=1, **fields)


def request_approval(turn, **fields):
    call = turn.tool_calls.create(call_id="c1", name="pay", state="awaiting_approval")
    become(turn, status="waiting")
    until = timezone.now() + timedelta(hours=1)
    return call.questions.create(
        kind="approval", arguments={"to": SECRET_TEXT}, expires_at=until, **fields
    )


def in_background(turn, **fields):
    fields = {"started_at": timezone.now(), "progress": SECRET_TEXT, **fields}
    return turn.tool_calls.create(
        call_id="c2", name="dig", state="executing", blocking=False, **fields
    )


def run_command(*arguments: str) -> tuple[str, int]:
    """What the command prints, and how it ends."""
    out = io.StringIO()
    try:
        call_command("engine_status", *arguments, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(str(end.code))
    return out.getvalue(), 0


def only(found):
    (line,) = found.turns
    return line


# What is reported


def test_an_idle_engine_reports_nothing():
    found = status()
    assert (found.turns, found.calls, found.questions, found.stuck) == ([], [], [], 0)
    assert found.oldest_wait is None
    assert not found.is_cut
    assert run_command()[1] == 0


def test_a_running_turn_is_reported_with_its_lease(turn):
    runs(turn, left=100, claims=2)
    line = only(status())
    assert (line.status, line.epoch, line.claims) == ("in_progress", 1, 2)
    assert 0 < line.lease_left <= 100
    assert (line.owner, line.model, line.waited) == ("ada", "", None)
    assert line.stuck == ""


def test_a_finished_turn_is_not_reported(turn):
    become(turn, status="completed", finished_at=timezone.now())
    assert status().turns == []


def test_only_a_turn_that_could_run_counts_as_waiting(conversation, turn):
    become(turn, created_at=ago(20))
    conversation.open_turn([user_message("And then?")])
    first, second = status().turns
    assert first.waited >= 20
    assert second.waited is None
    assert status().oldest_wait >= 20


def test_a_turn_waits_since_the_one_before_it_ended(conversation, turn):
    become(turn, created_at=ago(1000))
    later = conversation.open_turn([user_message("And then?")]).turn
    become(later, created_at=ago(900))
    become(turn, status="completed", finished_at=ago(50))
    assert 50 <= status().oldest_wait < 900


def test_a_turn_waits_since_a_person_decided(turn):
    become(turn, created_at=ago(1000))
    question = request_approval(turn)
    question.decide(turn.conversation.owner, "decline")
    Question.objects.update(decided_at=ago(40))
    assert 40 <= status().oldest_wait < 1000


def test_open_questions_and_background_calls_are_reported(turn):
    request_approval(turn)
    in_background(turn, accepted_at=timezone.now())
    found = status()
    (question,), (call,) = found.questions, found.calls
    assert (question.tool, question.asked) == ("pay", "ada")
    assert 0 < question.expires_in <= 3600
    assert (call.tool, call.is_elsewhere, call.stuck) == ("dig", True, "")
    assert (found.counts["waiting"], found.counts["calls"]) == (1, 1)


def test_the_number_of_queries_does_not_grow(conversation):
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as made:
            status()
        return len(made)

    conversation.open_turn([user_message("Hi")])
    few = queries()
    for _ in range(10):
        request_approval(conversation.open_turn([user_message("Hi")]).turn)
        in_background(conversation.open_turn([user_message("Hi")]).turn)
    assert queries() == few


def test_rows_beyond_the_limit_are_counted(conversation, monkeypatch):
    monkeypatch.setattr("conversations.staff.engine_status.MAX_ROWS", 2)
    turns = [conversation.open_turn([user_message("Hi")]).turn for _ in range(4)]
    runs(turns[3], left=-60)
    found = status()
    assert found.is_cut
    assert found.counts["queued"] == 3
    assert found.turns[0].id == turns[3].pk  # what is stuck is never left out


# What is stuck


STUCK = [
    ({"left": -31}, "its lease has expired"),
    ({"left": -29}, ""),
    ({"left": 5, "claims": 5}, "was claimed 5 times"),
    ({"left": 5, "claims": 4}, ""),
]


@pytest.mark.parametrize(("fields", "why"), STUCK)
def test_a_running_turn_is_stuck_without_a_lease_or_claims(turn, fields, why):
    runs(turn, **fields)
    found = only(status()).stuck
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_a_queued_turn_is_stuck_only_where_no_worker_runs(turn):
    become(turn, created_at=ago(31))
    assert only(status()).stuck.startswith("no worker claims it")
    other = Conversation.objects.create(owner=turn.conversation.owner)
    runs(other.open_turn([user_message("Hi")]).turn)
    assert [line.stuck for line in status().turns] == ["", ""]


def test_a_waiting_turn_without_an_open_question_is_stuck(turn):
    question = request_approval(turn)
    assert status().stuck == 0
    Question.objects.filter(pk=question.pk).delete()
    assert only(status()).stuck == "waits for a person, but has no open question"


@pytest.mark.parametrize(
    ("fields", "is_stuck"),
    [
        ({"lease_until": 31}, True),
        ({"lease_until": -5}, False),
        ({"started_at": 31}, True),
        ({"started_at": 1}, False),
        ({"started_at": 3600, "accepted_at": 3600}, False),
        (
            {
                "started_at": 3600,
                "accepted_at": 3600,
                "deadline_at": 31,
            },
            True,
        ),
    ],
)
def test_an_unattended_background_call_is_stuck(turn, fields, is_stuck):
    become(turn, status="completed")
    in_background(turn, **{name: ago(seconds) for name, seconds in fields.items()})
    (call,) = status().calls
    assert bool(call.stuck) == is_stuck


# The command


def test_the_command_ends_with_1_where_something_is_stuck(turn):
    runs(turn, left=-120)
    text, code = run_command()
    assert code == 1
    assert "stuck: 1" in text
    (row,) = [line for line in text.splitlines() if line.startswith(turn.pk)]
    assert row.endswith("its lease has expired and no run has claimed it")
    assert "-2m" in row


def test_json_output_has_the_same_content(turn):
    runs(turn, left=-120)
    request_approval(turn.conversation.open_turn([user_message("Hi")]).turn)
    text, code = run_command("--json")
    data = json.loads(text)
    assert (code, data["stuck"], data["delivery"]) == (1, 1, DELIVERY)
    assert data["turns"][0]["id"] == turn.pk
    assert data["counts"]["waiting"] == len(data["questions"]) == 1


def test_no_prompt_text_is_reported(admin_client, turn):
    request_approval(turn)
    in_background(turn)
    page = admin_client.get(PAGE).content.decode()
    for text in (run_command()[0], run_command("--json")[0], page):
        assert turn.pk in text
        assert SECRET_TEXT not in text


@pytest.mark.skipif(not settings.IS_SCALED, reason="there are no workers")
def test_live_and_lost_workers_are_reported(admin_client):
    assert "workers: no worker has sent a heartbeat" in run_command()[0]
    for number, seconds in enumerate((3, 90)):
        ProcessStatus.objects.create(
            id=f"worker-{number}",
            runs_turns=True,
            started_at=ago(200 - number),
            heard_at=ago(seconds),
            figures={"running": 0, "starting": 0, "slots": 9, "lag": 0.0}
            | {"connections": 0, "connections_waiting": 0, "max_connections": 9},
        )
    alive, lost = status().workers
    assert (alive.is_lost, lost.is_lost) == (False, True)
    assert f"{lost.id} (last heartbeat 90" in (text := run_command()[0])
    assert text.count(", lost)") == 1
    assert f"{alive.id}" in admin_client.get(PAGE).content.decode()


# The page


def test_the_admin_index_links_the_page_for_permitted_staff():
    inspector = signed_in(staff("ines", "inspect_turn"))
    assert PAGE in inspector.get(reverse("admin:index")).content.decode()
    index = reverse("admin:app_list", args=["conversations"])
    assert PAGE in inspector.get(index).content.decode()
    assert inspector.get(PAGE).status_code == 200
    other = signed_in(staff("otto", "view_turn"))
    assert PAGE not in other.get(reverse("admin:index")).content.decode()
    assert other.get(PAGE).status_code == 403
    assert signed_in(a_user("bob")).get(PAGE).status_code == 302


def test_the_page_explains_why_something_is_stuck(admin_client, turn):
    runs(turn, left=-60)
    in_background(turn)
    text = html.unescape(admin_client.get(PAGE).content.decode())
    assert "1 is stuck." in text
    assert "its lease has expired and no run has claimed it" in text
    assert 'value="release"' in text


def test_staff_without_permission_see_no_buttons_and_change_nothing(turn):
    runs(turn)
    inspector = signed_in(staff("ines", "inspect_turn"))
    assert 'name="action"' not in inspector.get(PAGE).content.decode()
    url = reverse("admin:conversations_engine_turn", args=[turn.pk])
    assert inspector.post(url, {"action": "retry"}).status_code == 403
    changer = signed_in(staff("carl", "change_turn"))
    assert changer.post(url, {"action": "retry"}).status_code == 404
    turn.refresh_from_db()
    assert turn.epoch == 1


def act(client, turn, action):
    url = reverse("admin:conversations_engine_turn", args=[turn.pk])
    data = {"action": action, "confirmed": "yes"}
    return client.post(url, data, follow=True)


@pytest.fixture
def operator():
    return signed_in(staff("olga", "inspect_turn", "change_turn"))


def test_buttons_perform_their_action_and_are_logged(
    operator, turn, django_capture_on_commit_callbacks
):
    runs(turn, left=-60, claims=5)
    assert "queued again" in act(operator, turn, "retry").content.decode()
    turn.refresh_from_db()
    assert (turn.status, turn.claims, turn.epoch) == ("queued", 0, 2)
    runs(turn)
    assert "another run can claim" in act(operator, turn, "release").content.decode()
    with django_capture_on_commit_callbacks(execute=True):
        assert "being stopped" in act(operator, turn, "cancel").content.decode()
    turn.refresh_from_db()
    assert turn.cancel_requested
    messages = [entry.change_message for entry in LogEntry.objects.order_by("pk")]
    assert messages == ["Queued again.", "Released from its run.", "Stopped."]
    assert SECRET_TEXT not in str(list(LogEntry.objects.values()))


def test_a_button_asks_before_it_acts(operator, turn):
    runs(turn)
    url = reverse("admin:conversations_engine_turn", args=[turn.pk])
    asked = operator.post(url, {"action": "release", "next": "turn"})
    assert "Release this turn from its run?" in asked.content.decode()
    turn.refresh_from_db()
    assert (turn.status, turn.epoch) == (Turn.Status.RUNNING, 1)
    done = operator.post(url, {**asked.context["posted"], "confirmed": "yes"})
    page = reverse("admin:conversations_turn_change", args=[turn.pk])
    assert done["Location"] == page


@pytest.mark.parametrize("action", ["cancel", "retry", "release"])
def test_a_turn_that_is_over_is_left_alone(operator, turn, action):
    become(turn, status="completed")
    assert "Nothing was changed" in act(operator, turn, action).content.decode()
    turn.refresh_from_db()
    assert (turn.status, turn.cancel_requested) == ("completed", False)
    assert not LogEntry.objects.exists()


def test_an_unknown_action_is_refused(operator, turn):
    assert act(operator, turn, "explode").status_code == 404


def test_a_call_in_the_background_is_cancelled(operator, turn):
    call = in_background(turn)
    url = reverse("admin:conversations_engine_cancel_call", args=[call.pk])
    assert operator.get(url).status_code == 405
    assert operator.post(url, follow=True).status_code == 200
    assert ToolCall.objects.get(pk=call.pk).cancel_requested


# Rescue


@pytest.mark.parametrize("do", [staff_actions.retry, staff_actions.release])
def test_releasing_a_turn_fences_its_worker_and_allows_a_new_claim(turn, do):
    first = claim_store.claim(turn.pk)
    assert first is not None
    assert claim_store.claim(turn.pk) is None
    assert do(turn.pk)
    with pytest.raises(StaleEpoch):
        turn_store.advance(first, TurnProgress())
    assert lease_store.heartbeat({first: None}).lost == [first]
    second = claim_store.claim(turn.pk)
    assert second is not None
    assert second.epoch > first.epoch
    assert second.claims == (1 if do is staff_actions.retry else 2)


def test_only_a_running_turn_is_released(turn):
    assert not staff_actions.release(turn.pk)
    assert staff_actions.retry(turn.pk)
