"""The live board: processes, providers, drains and maintenance, in both deliveries."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.access import maintenance
from conversations.access.errors import UnderMaintenance
from conversations.access.maintenance import Notice
from conversations.models import Conversation, Maintenance, ProcessStatus, Turn
from conversations.staff.live_board import MAX_ROWS, live_board
from llm.models import ApiKey, ModelCall
from llm.wire.deltas import FinishDelta, TextDelta
from tests.conversations.both_deliveries.test_engine import answer, follow, submit_turn
from tests.conversations.scene import (
    a_finished_turn,
    a_user,
    bearer,
    signed_in,
    staff,
)

PAGE = reverse("admin:conversations_engine")
DRAIN = reverse("admin:conversations_engine_drain")
MAINTENANCE = reverse("admin:conversations_engine_maintenance")
DONE = [TextDelta(0, "Done."), FinishDelta("stop")]


@pytest.fixture(autouse=True)
def no_maintenance():
    yield
    maintenance.note(Notice())


def made(name: str, status: str = "completed", **fields: Any) -> ModelCall:
    return ModelCall.objects.create(provider_name=name, status=status, **fields)


def a_process(name: str = "p-1", **fields: Any) -> ProcessStatus:
    now = timezone.now()
    times = {"started_at": now, "heard_at": now}
    figures = {"running": 3, "starting": 0, "slots": 50, "connections": 2}
    figures |= {"max_connections": 2000, "connections_waiting": 0, "lag": 0.004}
    given = {"runs_turns": True, "figures": figures, **times, **fields}
    return ProcessStatus.objects.create(id=name, **given)


@pytest.mark.django_db
def test_the_board_counts_calls_of_the_last_minutes_by_provider():
    for latency in range(1, 11):
        made("quick", latency=float(latency), ttft=0.5)
    made("broken", "failed", error_code="E_LLM_PROVIDER_DOWN", latency=9)
    made("quick", is_cached=True, latency=0)
    for purpose in ("probe", "test", "trial"):
        made("quick", "failed", purpose=purpose)
    for source in ("own", "call"):  # of a person, whose bad key is not the host's fault
        made("quick", "failed", key_source=source, error_code="E_LLM_INVALID_KEY")
    old = made("gone", "failed")
    ModelCall.objects.filter(pk=old.pk).update(
        created_at=timezone.now() - timedelta(minutes=6)
    )
    broken, quick = live_board().providers
    assert (broken.name, broken.error_percent) == ("broken", 100)
    assert (broken.last_error, broken.p50) == ("E_LLM_PROVIDER_DOWN", None)
    figures = (quick.calls, quick.failed, quick.p50, quick.p95, quick.first_p50)
    assert figures == (10, 0, 5, 10, 0.5)


@pytest.mark.django_db
def test_the_board_reads_with_four_queries_whatever_there_is(
    django_assert_num_queries,
):
    for number in range(MAX_ROWS + 5):
        a_process(f"p-{number}")
        made(f"provider {number}")
    with django_assert_num_queries(4):
        board = live_board()
    assert len(board.processes) == MAX_ROWS


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("silent", "is_shown", "is_lost"),
    [(0, True, False), (25, True, True), (400, True, True), (601, False, False)],
)
def test_a_silent_process_is_lost_without_figures_and_then_forgotten(
    silent, is_shown, is_lost
):
    since = timezone.now() - timedelta(seconds=silent)
    figures = {"running": 77, "slots": 88, "connections": 66, "max_connections": 99}
    a_process(heard_at=since, figures={**figures, "lag": 0.1})
    client = signed_in(staff("olga", "inspect_turn", "change_maintenance"))
    page = client.get(PAGE, {"fragment": "1"}).content.decode()
    assert ("p-1" in page) is is_shown
    assert (">lost<" in page) is is_lost
    shows_figures = is_shown and not is_lost
    assert ("77 / 88" in page, "66 / 99" in page) == (shows_figures, shows_figures)
    assert ('name="drains"' in page) is shows_figures


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"drains": False}, "told to drain"),
        ({"drains": True, "running": 1}, "draining"),
        ({"drains": True}, "drained"),
        ({}, "drained"),  # a process of an earlier version
    ],
)
def test_a_process_drains_once_it_says_so_itself(figures, words):
    a_process(drains=True, figures={"lag": 0.0, **figures})
    client = signed_in(staff("olga", "inspect_turn"))
    page = client.get(PAGE, {"fragment": "1"}).content.decode()
    found = [w for w in ("told to drain", "draining", "drained") if w in page]
    assert found == [words]


@pytest.mark.django_db
def test_the_board_shows_no_prompt_and_no_key(conversation):
    ApiKey.objects.update(
        state=ApiKey.State.RESTING,
        rest_until=timezone.now() + timedelta(minutes=3),
        state_reason="429",
    )
    a_process()
    client = signed_in(staff("olga", "inspect_turn"))
    page = client.get(PAGE).content.decode()
    assert "429" in page
    assert "p-1" in page
    assert "demo-key-of-these-tests" not in page
    fragment = client.get(PAGE, {"fragment": "1"}).content.decode()
    assert "p-1" in fragment
    assert "<html" not in fragment


@pytest.mark.django_db
def test_drain_and_maintenance_need_their_permission():
    a_process()
    few = signed_in(staff("few", "inspect_turn", "change_turn"))
    page = few.get(PAGE).content.decode()
    assert DRAIN not in page
    assert MAINTENANCE not in page
    posted = {"process": "all", "drains": "yes", "confirmed": "yes"}
    for client in (few, signed_in(a_user("bob")), Client()):
        assert client.post(DRAIN, posted).status_code in (302, 403)
        assert client.post(MAINTENANCE, {"banner": "x"}).status_code in (302, 403)
    assert not ProcessStatus.objects.filter(drains=True).exists()
    assert not Maintenance.objects.exists()
    fully = signed_in(staff("olga", "inspect_turn", "change_maintenance"))
    assert fully.get(DRAIN).status_code == 405
    assert fully.post(DRAIN, {"process": "none"}).status_code == 404
    asked = fully.post(DRAIN, {"process": "p-1", "drains": "yes"})
    assert "No more turns" not in asked.content.decode()
    assert not ProcessStatus.objects.filter(drains=True).exists()
    fully.post(DRAIN, posted)
    assert ProcessStatus.objects.get().drains
    assert LogEntry.objects.get().change_message == "Drains."


@pytest.mark.django_db
def test_an_old_page_changes_only_what_its_user_has_changed():
    client = signed_in(staff("olga", "change_maintenance"))
    page = client.get(PAGE).text
    names = ("banner", "refuses_messages", "admin_is_read_only")
    shown = {f"initial-{name}": value_of(f"initial-{name}", page) for name in names}
    assert set(shown.values()) == {"", "False"}
    Maintenance.objects.create(pk=1, refuses_messages=True, admin_is_read_only=True)
    client.post(MAINTENANCE, {**shown, "banner": "Update at noon"})
    row = Maintenance.objects.get()
    assert (row.banner, row.refuses_messages) == ("Update at noon", True)
    assert row.admin_is_read_only
    page = client.get(PAGE).text
    shown = {f"initial-{name}": value_of(f"initial-{name}", page) for name in names}
    client.post(MAINTENANCE, {**shown, "admin_is_read_only": "on"})
    row.refresh_from_db()
    assert (row.banner, row.refuses_messages) == ("", False)
    assert row.admin_is_read_only


def value_of(name: str, page: str) -> str:
    found = re.search(rf'name="{name}"\s+value="([^"]*)"', page)
    assert found, name
    return found[1]


async def order(**changed: Any) -> None:
    """What staff have stored reaches the engine with its next report."""
    await ProcessStatus.objects.aupdate(**changed)
    await engine.require_engine().status_report.report()


async def test_a_drained_process_starts_no_turn_until_the_drain_ends(
    conversation, say, running
):
    say(DONE)
    await order(drains=True)
    row = await ProcessStatus.objects.aget()
    assert row.figures["drains"] is True
    turn = await submit_turn(conversation)
    engine.submit(turn.pk, conversation.pk)
    await engine.require_engine().sweep()
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.QUEUED
    await order(drains=False)
    await engine.require_engine().sweep()
    await follow(turn)
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.COMPLETED


async def test_a_turn_that_runs_ends_in_a_drain(conversation, say, running):
    go_on = asyncio.Event()
    say([TextDelta(0, "half"), go_on, FinishDelta("stop")])
    turn = await submit_turn(conversation)
    engine.submit(turn.pk, conversation.pk)
    following = asyncio.ensure_future(follow(turn))
    while not engine.require_engine().runs:
        await asyncio.sleep(0)
    await order(drains=True)
    go_on.set()
    await following
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.COMPLETED


async def test_a_process_reports_its_figures_and_leaves_no_row(
    conversation, say, transactional_db
):
    await engine.start()
    say(DONE)
    await answer(conversation)
    await engine.require_engine().status_report.report()
    row = await ProcessStatus.objects.aget()
    assert row.figures["connections"] == 0
    assert row.figures["slots"] > 0
    assert 0 <= row.figures["lag"] < 60
    await engine.drain()
    assert not await ProcessStatus.objects.aexists()


BANNER = "Back at noon <b>today</b>"


async def test_a_notice_reaches_processes_with_their_report(running):
    await Maintenance.objects.acreate(banner=BANNER, refuses_messages=True)
    await engine.require_engine().status_report.report()
    assert maintenance.state.notice == Notice(BANNER, True)
    with pytest.raises(UnderMaintenance, match="Back at noon"):
        maintenance.check_open()


@pytest.mark.django_db
def test_every_door_refuses_messages_clearly_and_all_pages_show_the_banner(
    conversation,
):
    operator = signed_in(staff("olga", "inspect_turn", "change_maintenance"))
    posted = {"banner": BANNER, "refuses_messages": "on"}
    assert operator.post(MAINTENANCE, posted).status_code == 302
    ada = signed_in(conversation.owner)
    page = ada.get(reverse("conversation", args=[conversation.pk]))
    assert "Back at noon &lt;b&gt;" in page.content.decode()
    program = Client(headers=bearer(conversation.owner))
    url = f"/api/conversations/{conversation.pk}/turns/"
    answer = program.post(url, {"input": "Hi"}, content_type="application/json")
    assert (answer.status_code, answer["Retry-After"]) == (503, "60")
    error = answer.json()["error"]
    assert error["code"] == "maintenance"
    assert error["message"] == BANNER
    assert not Turn.objects.exists()


@pytest.mark.django_db
def test_every_form_of_the_pages_refuses_with_503_and_keeps_the_text(conversation):
    asked = a_finished_turn(conversation, "First question")
    Turn.objects.filter(pk=asked.pk).update(status=Turn.Status.CANCELLED)
    maintenance.note(Notice(BANNER, True))
    ada = signed_in(conversation.owner)
    place = [conversation.pk, asked.pk]
    for page in (
        reverse("chat"),
        reverse("conversation", args=[conversation.pk]),
        reverse("edit-message", args=place),
        reverse("retry", args=place),
        reverse("continue", args=place),
    ):
        refused = ada.post(page, {"text": "My words", "key": "k", "model": ""})
        assert (refused.status_code, refused["Retry-After"]) == (503, "60"), page
        html = refused.content.decode()
        assert "Back at noon &lt;b&gt;" in html, page
        assert "My words" in html or page.endswith("/retry/"), page
    assert Turn.objects.count() == 1


@pytest.mark.django_db
def test_a_rate_limit_of_a_page_stays_a_429(conversation, settings):
    settings.USER_REQUESTS_PER_MINUTE = 1
    ada = signed_in(conversation.owner)
    page, form = reverse("conversation", args=[conversation.pk]), {"text": "Hi"}
    ada.post(page, {**form, "key": "a"})
    refused = ada.post(page, {**form, "key": "b"})
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) >= 1


async def test_the_gateway_refuses_in_the_form_of_each_api(conversation):
    from httpx import ASGITransport, AsyncClient

    from project.server.application import application

    maintenance.note(Notice("", True))
    headers = await sync_to_async(bearer)(conversation.owner)
    said = [{"role": "user", "content": "Hi"}]
    async with AsyncClient(
        transport=ASGITransport(application), base_url="http://localhost"
    ) as http:
        for path, body in (
            ("/v1/chat/completions", {"messages": said}),
            ("/v1/responses", {"input": "Hi"}),
            ("/v1/responses", {"input": "Hi", "store": False}),
            ("/v1/messages", {"messages": said, "max_tokens": 5}),
        ):
            refused = await http.post(
                path, headers=headers, json={"model": "demo", **body}
            )
            assert refused.status_code == 503, path
            assert "under maintenance" in json.dumps(refused.json()), path
            assert refused.headers["retry-after"] == "60"
    assert not await Turn.objects.aexists()


@pytest.mark.django_db
def test_the_board_names_states_of_turns_in_the_language_of_staff(
    admin_client: Client,
) -> None:
    conversation = Conversation.objects.create(owner=a_user())
    turn = a_finished_turn(conversation)
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.WAITING)
    answer = admin_client.get(PAGE, headers={"accept-language": "de"})
    assert re.search(r"<td>\s*wartet auf eine Person", answer.content.decode())
