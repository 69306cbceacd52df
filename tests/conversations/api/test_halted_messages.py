"""A message at its limit: how page, REST and WebSocket report and continue it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import Client
from django.urls import reverse

from conversations import engine
from conversations.models import Conversation, ToolCall, Turn
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import user_message
from tests.conversations.both_deliveries.test_background import Slow, calling
from tests.conversations.scene import (
    a_finished_turn,
    a_user,
    bearer,
    program,
    signed_in,
)

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = [TextDelta(0, "Done."), FinishDelta("stop")]


@pytest.fixture
def halted(conversation: Conversation) -> Turn:
    """A message whose one result waits."""
    turn = a_finished_turn(conversation, "Dig")
    Turn.objects.filter(pk=turn.pk).update(halted_by="max_turns")
    a_call(turn, state="completed", output="gold")
    return turn


def a_call(turn: Turn, **fields: Any) -> ToolCall:
    known = {"call_id": "c1", "name": "dig", "blocking": False}
    return ToolCall.objects.create(turn=turn, **known, **fields)


def page_of(conversation: Conversation) -> str:
    client = signed_in(conversation.owner)
    return client.get(reverse("conversation", args=[conversation.pk])).content.decode()


# The page


def test_the_page_shows_the_halted_message_and_continues_it(halted, conversation):
    page = page_of(conversation)
    path = reverse("continue", args=[conversation.pk, halted.pk])
    assert "This message reached its limit of turns." in page
    assert "The model has not seen the result of dig." in page
    assert f'formaction="{path}"' in page
    client = signed_in(conversation.owner)
    answer = client.post(path)
    opened = Turn.objects.get(caused_by=halted)
    assert answer.url.endswith(f"#turn-{opened.pk}")
    assert "limit of turns" not in page_of(conversation)
    client.post(path)  # another tab
    assert Turn.objects.filter(caused_by=halted).count() == 1


def test_an_open_page_shows_the_halted_message_too(halted, conversation):
    path = reverse("background", args=[conversation.pk])
    strip = signed_in(conversation.owner).get(path).content.decode()
    assert f'data-halt="{halted.pk}"' in strip
    assert " hidden>" not in strip


@pytest.mark.parametrize("by", ["", "person"])
def test_the_page_shows_no_strip_below_the_limits(halted, conversation, by):
    Turn.objects.filter(pk=halted.pk).update(halted_by=by)
    assert "data-halt" not in page_of(conversation)


def test_the_page_shows_no_strip_once_all_results_are_delivered(halted, conversation):
    later = a_finished_turn(conversation, "And?")
    ToolCall.objects.update(delivered_in=later)
    assert "data-halt" not in page_of(conversation)


def test_a_turn_over_its_cost_limit_reports_it(conversation):
    turn = a_finished_turn(conversation, "Dig")
    cut = {"status": "incomplete", "incomplete_reason": "max_cost"}
    Turn.objects.filter(pk=turn.pk).update(halted_by="max_cost", **cut)
    page = page_of(conversation)
    assert "This message reached its cost limit. Continue?" in page
    assert "The message reached its cost limit." in page


def test_others_cannot_go_on(halted, conversation):
    path = reverse("continue", args=[conversation.pk, halted.pk])
    assert signed_in(a_user("eve")).post(path).status_code == 404
    assert not Turn.objects.filter(caused_by=halted).exists()


def test_an_abandoned_call_is_shown_to_people_and_staff(conversation, admin_client):
    turn = a_finished_turn(conversation, "Dig")
    call = a_call(turn, state="abandoned", error="It may still take effect.")
    answer = program(conversation.owner).get(
        f"/api/conversations/{conversation.pk}/tool-calls/"
    )
    assert [result["state"] for result in answer.json()["results"]] == ["abandoned"]
    url = reverse("admin:conversations_toolcall_changelist")
    listed = admin_client.get(f"{url}?state__exact=abandoned").content.decode()
    assert reverse("admin:conversations_toolcall_change", args=[call.pk]) in listed
    assert "abandoned, may still run" in listed


# REST


def test_a_program_sees_the_bound_and_goes_on(halted, conversation):
    client = program(conversation.owner)
    body = client.get(f"/api/turns/{halted.pk}/").json()
    assert (body["halted_by"], body["caused_by"]) == ("max_turns", None)
    answer = client.post(f"/api/turns/{halted.pk}/continue/")
    assert answer.status_code == 202
    opened = answer.json()
    assert (opened["caused_by"], opened["status"]) == (halted.pk, "queued")
    assert client.get(f"/api/turns/{halted.pk}/").json()["halted_by"] == ""
    again = client.post(f"/api/turns/{opened['id']}/continue/")
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "nothing_to_continue"


def test_programs_of_others_cannot_go_on(halted):
    answer = program(a_user("eve")).post(f"/api/turns/{halted.pk}/continue/")
    assert answer.status_code == 404


def test_continuing_a_message_counts_against_the_callers_token(halted, conversation):
    headers = bearer(conversation.owner)
    Client(headers=headers).post(f"/api/turns/{halted.pk}/continue/")
    opened = Turn.objects.get(caused_by=halted)
    assert opened.access_token_id == conversation.owner.access_tokens.get().pk


def test_a_program_stops_all_that_a_message_caused(conversation):
    turn = a_finished_turn(conversation, "Dig")
    older = a_call(a_finished_turn(conversation, "Before"), state="executing")
    call = a_call(turn, state="executing")
    wake = conversation.open_turn([], caused_by=turn.pk).turn
    answer = program(conversation.owner).post(f"/api/turns/{turn.pk}/cancel/")
    assert answer.json()["halted_by"] == "person"
    for row in (older, call, wake):
        row.refresh_from_db()
    assert wake.cancel_requested
    assert (older.cancel_requested, call.cancel_requested) == (False, True)


def test_a_turn_stops_even_if_the_process_ends_before_its_message_counts_as_stopped(
    conversation,
):
    class Killed(BaseException):
        pass

    def kill(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith("UPDATE") and "halted_by" in sql:
            raise Killed
        return execute(sql, *rest)

    turn = conversation.open_turn([user_message("Dig")]).turn
    with pytest.raises(Killed), connection.execute_wrapper(kill):
        engine.cancel(turn)
    turn.refresh_from_db()
    assert (turn.cancel_requested, turn.halted_by) == (True, "")


# WebSocket


async def test_a_page_goes_on_over_its_socket(conversation, halted, say, page):
    say(ANSWER)
    await page.say(type="turn.continue", turn=halted.pk, key="k1")
    queued = await page.until("parley:turn.queued")
    assert queued["key"] == "k1"
    ending = await page.until("response.completed")
    assert ending["turn"] == queued["turn"]
    opened = await Turn.objects.aget(pk=queued["turn"])
    assert opened.caused_by_id == halted.pk
    assert (await ToolCall.objects.aget()).delivered_in_id == opened.pk
    await page.say(type="turn.continue", turn=halted.pk)
    refused = await page.until("error")
    assert refused["error"]["code"] == "nothing_to_continue"


async def test_a_page_cancels_an_older_call_over_its_socket(
    conversation,
    say,
    offer,
    page,
):
    say(calling(), ANSWER)
    slow = Slow()
    offer(slow)
    await page.say(type="turn.create", input="Dig")
    while not slow.begun:
        await asyncio.sleep(0)
    await page.until("response.completed")
    call = await ToolCall.objects.aget()
    await page.say(type="tool_call.cancel", id=call.pk)
    while not await ToolCall.objects.filter(state="cancelled").aexists():
        await asyncio.sleep(0)
    assert slow.cancelled == ["c1"]


@pytest.mark.parametrize("id", [0, 10**30, "c1", None])
async def test_a_call_that_is_not_there_is_refused(conversation, page, id):
    await page.say(type="tool_call.cancel", id=id)
    assert (await page.until("error"))["error"]["param"] == "id"


async def test_calls_of_other_conversations_are_not_cancelled(
    conversation, halted, page
):
    other = await sync_to_async(Conversation.objects.create)(owner=conversation.owner)
    opened = await sync_to_async(other.open_turn)([])
    turn = opened.turn
    call = await sync_to_async(a_call)(turn, state="executing", lease_until=None)
    await page.say(type="tool_call.cancel", id=call.pk)
    assert (await page.until("error"))["error"]["param"] == "id"
