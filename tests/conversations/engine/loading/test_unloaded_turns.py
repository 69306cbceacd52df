"""Turns that an earlier run has begun, and that the next run cannot load."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine import claim_store, lease_store, question_store, turn_store
from conversations.engine.lease_store import ProviderResponse, Snapshot
from conversations.engine.progress_store import TurnProgress
from conversations.engine.question_store import NewQuestion
from conversations.models import Item, Question, ToolCall, Turn
from conversations.turns.file_storage import FilesUnavailable
from llm.errors import ModelNotAvailable
from llm.models import ApiKey, LanguageModel
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import message, text_of, user_message
from llm.wire.request import BackgroundResponse
from tests.conversations.script import HANG

pytestmark = pytest.mark.django_db(transaction=True)

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "send",
    "arguments": "{}",
    "status": "completed",
}
HOUR = timedelta(hours=1)
USAGE = {"input_tokens": 70, "output_tokens": 9, "total_tokens": 79}
MODULE = "conversations.engine.loading.turn_loader"


@pytest.fixture(autouse=True)
async def stopping(settings, transactional_db):
    settings.DRAIN_GRACE = 0.0
    yield
    await engine.drain()


@pytest.fixture
def cancelled(monkeypatch):
    """The responses that were cancelled at the provider, with the provider's row."""
    found = []

    async def cancel(route, response):
        found.append((route.provider_id, response.id))

    monkeypatch.setattr("conversations.engine.runs.run.cancel_response", cancel)
    return found


def begin(conversation, **progress):
    """A turn whose first run has made a call, as a crash leaves it."""
    turn = conversation.open_turn([user_message("Send it")]).turn
    claim = claim_store.claim(turn.pk)
    made = TurnProgress(
        items=[(CALL, None, 3)],
        first_position=1,
        last_sequence=3,
        usage=USAGE,
        ended_output=1,
        **progress,
    )
    return turn, claim, made


@sync_to_async
def crash_in_text(conversation):
    """Beside a call that runs, while the provider answers."""
    turn, claim, made = begin(conversation, executing=[CALL])
    turn_store.advance(claim, made)
    row = ToolCall.objects.get()
    row.questions.create(
        kind="form", message="Which?", expires_at=turn.created_at + HOUR
    )
    key, model = ApiKey.objects.get(), conversation.language_model
    issuer = {
        "provider": "demo",
        "model": model.name,
        "route": f"{model.provider_id}:{key.pk}",
    }
    pending = ProviderResponse(BackgroundResponse("resp_far", issuer), 1)
    leave(claim, pending)
    return turn


@sync_to_async
def crash_in_first_text(conversation):
    turn, claim, _ = begin(conversation)
    leave(claim)
    return turn


def leave(claim, pending=None):
    text = {**message("assistant", "Half of"), "status": "in_progress"}
    lease_store.store_snapshot(claim, Snapshot([text], 9, provider_response=pending))
    claim_store.release_all()


@sync_to_async
def suspend(conversation):
    turn, claim, made = begin(conversation)
    question = NewQuestion(kind=Question.Kind.APPROVAL, schema={}, arguments={})
    question_store.suspend(claim, made, [(CALL, question)], 1000.0)
    return turn


@sync_to_async
def disable_model():
    LanguageModel.objects.update(enabled=False)


async def events_until(turn, *types):
    found = []
    async with asyncio.timeout(30):
        async for batch in engine.subscribe(turn.pk):
            for entry in batch:
                found.append(entry.event)
                if entry.type in types:
                    await turn.arefresh_from_db()
                    return found
    raise AssertionError([event["type"] for event in found])


@pytest.mark.parametrize(
    "error", [ModelNotAvailable("gone"), KeyError("unexpected")], ids=type
)
async def test_what_people_have_read_stays(conversation, cancelled, monkeypatch, error):
    turn = await crash_in_text(conversation)

    def fail(*_):
        raise error

    monkeypatch.setattr(f"{MODULE}.determine_setup", fail)
    await engine.start()
    events = await events_until(turn, "response.failed")
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["function_call", "message"]
    assert text_of(output[1]) == "Half of"
    rows = [row.payload async for row in Item.objects.filter(origin="output")]
    assert [text_of(row) for row in rows[1:]] == ["Half of"]
    assert (turn.status, turn.usage) == (Turn.Status.FAILED, USAGE)
    assert (await ToolCall.objects.aget()).state == ToolCall.State.CANCELLED
    assert (await Question.objects.aget()).state == Question.State.CANCELLED
    assert cancelled == [(conversation.language_model.provider_id, "resp_far")]


async def test_a_disabled_model_ends_it_by_name(conversation, cancelled):
    turn = await crash_in_text(conversation)
    await disable_model()
    await engine.start()
    *_, failed = await events_until(turn, "response.failed")
    assert failed["response"]["error"]["code"] == ModelNotAvailable.code
    assert cancelled == [(conversation.language_model.provider_id, "resp_far")]


async def test_it_is_cancelled_if_a_person_has_stopped_it(conversation, cancelled):
    turn = await crash_in_text(conversation)
    await disable_model()
    await Turn.objects.aupdate(cancel_requested=True)
    await engine.start()
    await events_until(turn, "response.incomplete")
    assert turn.status == Turn.Status.CANCELLED
    assert await Item.objects.filter(origin="output").acount() == 2


async def test_it_waits_for_files_that_cannot_be_read_now(
    conversation, say, monkeypatch
):
    say([TextDelta("t", "Half of it."), FinishDelta("stop")])
    turn = await crash_in_first_text(conversation)
    store, is_postponed = turn_store.postpone, asyncio.Event()
    loop = asyncio.get_running_loop()

    def refuse(*_):
        raise FilesUnavailable

    def postpone(claim):
        store(claim)
        loop.call_soon_threadsafe(is_postponed.set)

    with monkeypatch.context() as patch:
        patch.setattr(f"{MODULE}._prepare", refuse)
        patch.setattr(turn_store, "postpone", postpone)
        await engine.start()
        async with asyncio.timeout(30):
            await is_postponed.wait()
    await engine.drain()
    await turn.arefresh_from_db()
    assert (turn.status, turn.claims) == (Turn.Status.RUNNING, 1)
    assert turn.partial
    await sync_to_async(claim_store.release_all)()
    await engine.start()
    events = await events_until(turn, "response.completed", "response.failed")
    assert text_of(events[-1]["response"]["output"][-1]) == "Half of it."


async def test_a_look_at_it_leaves_it_waiting(conversation, say):
    """Its log is gone, so a run publishes the question again."""
    script = say([HANG])
    turn = await suspend(conversation)
    await disable_model()
    await engine.start()
    events = await events_until(turn, "parley:turn.waiting")
    [asked] = [e for e in events if e["type"] == "parley:approval.requested"]
    question = await Question.objects.aget()
    assert asked["question"]["id"] == question.pk
    assert turn.status == Turn.Status.WAITING
    assert 0 < turn.seconds_left <= 1000.0
    assert question.state == Question.State.OPEN
    assert script.requests == []


async def test_a_decision_ends_it_where_its_model_is_disabled(conversation):
    turn = await suspend(conversation)
    await disable_model()
    question = await Question.objects.select_related("tool_call").aget()
    assert await sync_to_async(question.decide)(conversation.owner, "accept")
    await engine.start()
    *_, failed = await events_until(turn, "response.failed")
    assert failed["response"]["output"] == [CALL]
    assert (await ToolCall.objects.aget()).state == ToolCall.State.CANCELLED
