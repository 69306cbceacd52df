"""Endpoints are told of turns and questions, by rows of the same transaction."""

from __future__ import annotations

import asyncio
import json

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from conversations import engine
from conversations.access.webhooks import outbox, recipients
from conversations.engine import claim_store, question_store, turn_store
from conversations.engine.event_log import StaleEpoch
from conversations.engine.progress_store import TurnProgress
from conversations.engine.question_store import NewQuestion
from conversations.models import Conversation, Delivery, Question, Turn
from conversations.models.tool_call import ToolCall
from llm.errors import BadRequest
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import user_message
from tests.conversations.scene import a_user

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.smoke,
]

WORDS = "zanzibar"  # in what people and models say


def opened(conversation: Conversation, author: User | None = None) -> Turn:
    turn: Turn = conversation.open_turn([user_message(WORDS)], author=author).turn
    return turn


async def run_turn(conversation: Conversation) -> Turn:
    turn = await sync_to_async(opened)(conversation)
    engine.submit(turn.pk, conversation.pk)
    async for _ in engine.subscribe(turn.pk, None):
        pass
    return turn


@pytest.mark.usefixtures("running")
async def test_a_receiver_verifies_what_it_gets_of_a_turn(
    conversation, make_endpoint, receiver, say
):
    say([TextDelta(0, f"{WORDS} it is."), FinishDelta("stop")])
    _, secret = await sync_to_async(make_endpoint)()
    turn = await run_turn(conversation)
    received = await asyncio.to_thread(receiver.get)
    assert received.is_signed_with(secret)
    event = received.event
    assert event["id"] == received.id
    assert event["type"] == "response.completed"
    assert event["data"]["id"] == turn.pk
    assert event["data"]["conversation"] == conversation.pk
    assert event["data"]["status"] == "completed"
    assert WORDS not in json.dumps([event, received.headers])


@pytest.mark.usefixtures("running")
async def test_of_a_failed_answer_the_code_is_told_and_no_word(
    conversation, make_endpoint, receiver, say
):
    say([BadRequest(f"Cannot answer {WORDS}.")])
    await sync_to_async(make_endpoint)()
    await run_turn(conversation)
    event = (await asyncio.to_thread(receiver.get)).event
    assert event["type"] == "response.failed"
    assert event["data"]["error"]["code"].startswith("E_")
    assert WORDS not in json.dumps(event)


def ended(conversation: Conversation, status: str = "completed") -> list[Delivery]:
    """What is queued when a turn ends so."""
    turn = opened(conversation)
    outbox.note_end(turn.pk, status)
    return list(Delivery.objects.filter(data__id=turn.pk))


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled"])
def test_each_end_has_its_event(conversation, make_endpoint, status):
    make_endpoint()
    (row,) = ended(conversation, status)
    assert row.type == f"response.{status}"


def test_only_chosen_events_are_told(conversation, make_endpoint):
    make_endpoint(events=["response.failed"])
    assert not ended(conversation)
    assert ended(conversation, "failed")


def test_nobody_is_told_of_what_others_do(conversation, make_endpoint):
    bob = a_user("bob")
    make_endpoint(owner=bob)
    assert not ended(conversation)
    theirs = Conversation.objects.create(
        owner=bob, language_model=conversation.language_model
    )
    assert ended(theirs)


def test_a_message_in_somebody_elses_chat_is_its_authors(conversation, make_endpoint):
    bob = a_user("bob")
    of_bob, _ = make_endpoint(owner=bob)
    make_endpoint(owner=conversation.owner)
    turn = opened(conversation, author=bob)
    outbox.note_end(turn.pk, "completed")
    assert Delivery.objects.get().endpoint_id == of_bob.pk


def test_endpoints_of_staff_are_told_of_chosen_people(conversation, make_endpoint):
    alice, group = conversation.owner, Group.objects.create(name="Orchard")
    everybody, _ = make_endpoint()
    hers, _ = make_endpoint()
    hers.users.add(alice)
    of_group, _ = make_endpoint()
    of_group.groups.add(group)
    of_bob, _ = make_endpoint()
    of_bob.users.add(a_user("bob"))
    assert {row.endpoint_id for row in ended(conversation)} == {everybody.pk, hers.pk}
    alice.groups.add(group)
    told = {row.endpoint_id for row in ended(conversation)}
    assert told == {everybody.pk, hers.pk, of_group.pk}


def test_whoever_may_not_sign_in_any_more_is_told_nothing(conversation, make_endpoint):
    make_endpoint(owner=conversation.owner)
    User.objects.update(is_active=False)
    assert not ended(conversation)


def test_without_endpoints_a_turn_costs_no_query(conversation):
    turn = opened(conversation)
    recipients.refresh()
    with CaptureQueriesContext(connection) as captured:
        outbox.note_end(turn.pk, "completed")
    assert not captured.captured_queries


def test_an_endpoint_that_is_made_during_a_look_is_known(make_endpoint):
    looks = []

    def make_meanwhile(execute, *query):
        result = execute(*query)
        looks.append(query)
        if len(looks) == 1:
            make_endpoint()
        return result

    with connection.execute_wrapper(make_meanwhile):
        recipients.refresh()
    assert recipients.wants_webhooks()


def test_an_endpoint_that_is_switched_off_costs_no_query(conversation, make_endpoint):
    make_endpoint(is_enabled=False)
    turn = opened(conversation)
    recipients.refresh()
    with CaptureQueriesContext(connection) as captured:
        outbox.note_end(turn.pk, "completed")
    assert not captured.captured_queries


def test_a_turn_that_another_run_has_taken_tells_nothing(conversation, make_endpoint):
    make_endpoint()
    turn = opened(conversation)
    claim = claim_store.claim(turn.pk)
    Turn.objects.filter(pk=turn.pk).update(epoch=claim.epoch + 1)
    ending = turn_store.Ending(
        status="cancelled",
        response={"usage": None, "incomplete_details": None},
        error=None,
        last_sequence=1,
        called=False,
    )
    with pytest.raises(StaleEpoch):
        turn_store.finish(claim, ending)
    assert not Delivery.objects.exists()


def test_a_question_is_told_without_its_arguments(conversation, make_endpoint):
    make_endpoint(owner=conversation.owner)
    turn = opened(conversation)
    call = ToolCall.objects.create(turn=turn, call_id="c", name="send", state="x")
    question = Question.objects.create(
        tool_call=call,
        kind="approval",
        message=WORDS,
        arguments={"to": WORDS},
        expires_at=turn.created_at,
    )
    outbox.note_question(question, turn.pk)
    row = Delivery.objects.get()
    assert row.type == "parley.question.opened"
    assert row.data["id"] == question.pk
    assert row.data["response"] == turn.pk
    assert WORDS not in json.dumps(row.envelope())


def test_an_endpoint_for_a_group_hears_of_the_questions_to_it(
    conversation, make_endpoint
):
    finance, sales = (Group.objects.create(name=name) for name in ("Finance", "Sales"))
    endpoint, _ = make_endpoint()
    endpoint.groups.add(finance)
    other, _ = make_endpoint()
    other.groups.add(sales)
    turn = opened(conversation)
    claim = claim_store.claim(turn.pk)
    call = {"type": "function_call", "call_id": "call_1", "name": "send"}
    question = NewQuestion(kind="approval", message=WORDS, group_id=finance.pk)
    question_store.suspend(claim, TurnProgress(), [(call, question)])
    row = Delivery.objects.get()
    assert (row.endpoint, row.data["group"]) == (endpoint, finance.pk)


def test_a_turn_that_is_suspended_tells_of_its_question(conversation, make_endpoint):
    make_endpoint()
    turn = opened(conversation)
    claim = claim_store.claim(turn.pk)
    call = {"type": "function_call", "call_id": "call_1", "name": "send"}
    asked = NewQuestion(kind="approval", message=WORDS)
    (question,) = question_store.suspend(claim, TurnProgress(), [(call, asked)])
    row = Delivery.objects.get()
    assert (row.type, row.data["id"]) == ("parley.question.opened", question.pk)


def test_a_tool_that_asks_tells_of_its_form_once(conversation, make_endpoint):
    make_endpoint()
    turn = opened(conversation)
    claim = claim_store.claim(turn.pk)
    ToolCall.objects.create(turn=turn, call_id="call_1", name="send", state="x")
    question = question_store.ask(claim, "call_1", NewQuestion(kind="form"))
    assert Delivery.objects.get().data["id"] == question.pk


def test_what_is_erased_takes_its_deliveries_along(conversation, make_endpoint):
    make_endpoint()
    assert ended(conversation)
    conversation.delete()
    assert not Delivery.objects.exists()


def test_an_erased_person_takes_deliveries_and_endpoints_along(
    conversation, make_endpoint
):
    make_endpoint()
    make_endpoint(owner=conversation.owner)
    assert len(ended(conversation)) == 2
    Conversation.objects.all().delete()
    conversation.owner.delete()
    assert not Delivery.objects.exists()
