"""Laws of claims: nothing is written by the holder of an older claim."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db.models import Model
from django.test import override_settings
from django.utils import timezone

from conversations.context import Rendering
from conversations.engine import (
    background_store,
    claim_store,
    lease_store,
    question_store,
    turn_store,
)
from conversations.engine.background_store import CallClaim
from conversations.engine.event_log import StaleEpoch
from conversations.engine.lease_store import Snapshot
from conversations.engine.loading import turn_context
from conversations.engine.progress_store import FinishedModelCall, TurnProgress
from conversations.engine.question_store import NewQuestion
from conversations.engine.turn_store import Claim, Ending
from conversations.models import (
    Attachment,
    Conversation,
    Item,
    Question,
    ToolCall,
    Turn,
)
from conversations.models.preset import GatheredContext
from llm import router
from llm.http.client import ProviderCall
from llm.models import ModelCall
from llm.pricing.caller import UNKNOWN_CALLER
from llm.wire.items import message, user_message
from tools.execute import CallOutcome
from tools.registry import Accepted

pytestmark = pytest.mark.django_db

LONG = CallOutcome("c1", "completed", "gold", "", 0.0, full_text="gold and more")
PROGRESS = TurnProgress(
    items=[(message("assistant", "Too late"), None, 5)],
    first_position=1,
    last_sequence=5,
    executing=[{"type": "function_call", "call_id": "c2", "name": "dig"}],
    outcomes=[LONG],
    ended_output=1,
)
ENDING = Ending(
    status="completed",
    response={"usage": None, "incomplete_details": None},
    error=None,
    last_sequence=6,
    called=True,
    progress=PROGRESS,
)
WRITES: dict[str, Callable[[Claim], object]] = {
    "advance": lambda claim: turn_store.advance(claim, PROGRESS),
    "finish": lambda claim: turn_store.finish(claim, ENDING),
    "suspend": lambda claim: question_store.suspend(claim, PROGRESS, []),
    "ask": lambda claim: question_store.ask(claim, "c1", NewQuestion(kind="form")),
    "stop the clock": lambda claim: question_store.stop_clock(claim, 7.0),
    "start the clock": lambda claim: question_store.start_clock(claim, 7.0),
    "save context": lambda claim: turn_context.save_context(claim, list[Rendering]()),
}


MODELS: list[type[Model]] = [
    *(Turn, Item, ToolCall, Question, GatheredContext, Attachment)
]


@pytest.fixture(autouse=True)
def media(tmp_path: Path) -> Iterator[None]:
    with override_settings(MEDIA_ROOT=tmp_path):
        yield


def rows() -> list[Any]:
    """And the stored files, which full outputs of calls are."""
    found = [row for model in MODELS for row in model._default_manager.values()]
    return [*found, *(path for path in settings.MEDIA_ROOT.rglob("*.txt"))]


def a_running_turn(conversation: Conversation) -> Claim:
    turn = conversation.open_turn([user_message("Hi")]).turn
    claim = claim_store.claim(turn.pk)
    assert claim is not None
    ToolCall.objects.create(turn=turn, call_id="c1", name="dig", state="executing")
    return claim


def a_stale_claim(conversation: Conversation) -> Claim:
    """Of a turn that another run has claimed after the lease expired."""
    claim = a_running_turn(conversation)
    Turn.objects.update(lease_until=timezone.now() - timedelta(minutes=1))
    assert claim_store.claim(claim.turn_id) is not None
    return claim


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_run_writes_while_its_claim_is_the_latest(
    conversation: Conversation, write: Callable[[Claim], object]
):
    claim = a_running_turn(conversation)
    before = rows()
    write(claim)
    assert rows() != before


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_run_with_an_older_claim_writes_nothing(
    conversation: Conversation, write: Callable[[Claim], object]
):
    claim = a_stale_claim(conversation)
    before = rows()
    with pytest.raises(StaleEpoch):
        write(claim)
    assert rows() == before


@pytest.mark.parametrize("name", ["advance", "finish", "suspend"])
def test_a_run_with_an_older_claim_hears_so_where_its_items_are_written_already(
    conversation: Conversation, name: str
):
    stale = a_stale_claim(conversation)
    turn_store.advance(replace(stale, epoch=stale.epoch + 1), PROGRESS)
    before = rows()
    with pytest.raises(StaleEpoch):
        WRITES[name](stale)
    assert rows() == before


@pytest.mark.parametrize("calls", [1, 3])  # in one statement, and in several
def test_items_and_calls_are_written_with_the_turn_or_not_at_all(
    conversation: Conversation, calls: int
):
    model = conversation.language_model
    assert model is not None
    key, route = model.provider.keys.get(), router.route_of(model)
    made = [
        FinishedModelCall(
            route=route,
            call=ProviderCall(),
            caller=UNKNOWN_CALLER,
            step=step,
            cancelled=False,
        )
        for step in range(calls)
    ]
    progress = replace(PROGRESS, calls_made=made, outcomes=(), executing=())
    claim = a_running_turn(conversation)
    stale = replace(claim, epoch=claim.epoch - 1)
    with pytest.raises(StaleEpoch):
        turn_store.advance(stale, progress)
    key.refresh_from_db()
    assert (ModelCall.objects.count(), key.last_used_at) == (0, None)
    turn_store.advance(claim, progress)
    key.refresh_from_db()
    steps = ModelCall.objects.filter(turn_id=claim.turn_id).values_list("step")
    assert sorted(steps) == [(step,) for step in range(calls)]
    assert key.last_used_at is not None
    item = Item.objects.get(turn=claim.turn_id, origin=Item.Origin.OUTPUT)
    assert (item.payload, item.sequence) == (PROGRESS.items[0][0], 5)


def test_a_run_with_an_older_claim_releases_nothing(conversation: Conversation):
    claim = a_stale_claim(conversation)
    before = rows()
    turn_store.release(claim, [message("assistant", "Too late")], [])
    assert rows() == before


def test_a_heartbeat_with_an_older_claim_renews_nothing(conversation: Conversation):
    claim = a_stale_claim(conversation)
    before = rows()
    late = Snapshot([message("assistant", "Too late")], 5)
    assert lease_store.heartbeat({claim: late}).lost == [claim]
    assert rows() == before


# Background calls


def claimed_call(pk: int) -> CallClaim:
    claim = background_store.claim(pk)
    assert claim is not None
    return claim


def a_running_call(conversation: Conversation) -> CallClaim:
    call = ToolCall.objects.create(
        turn=conversation.open_turn([user_message("Hi")]).turn,
        call_id="c1",
        name="dig",
        state="executing",
        blocking=False,
    )
    return claimed_call(call.pk)


def a_stale_call_claim(conversation: Conversation) -> CallClaim:
    claim = a_running_call(conversation)
    ToolCall.objects.update(lease_until=timezone.now() - timedelta(minutes=1))
    claimed_call(claim.pk)
    return claim


CALL_WRITES: dict[str, Callable[[CallClaim], object]] = {
    "renew": lambda claim: background_store.renew({claim: "half done"}),
    "accept": lambda claim: background_store.record_accepted(claim, Accepted("t")),
    "release": lambda claim: background_store.release([claim]),
    "conclude": lambda claim: background_store.conclude(claim, LONG),
}


@pytest.mark.parametrize("write", CALL_WRITES.values(), ids=CALL_WRITES)
def test_a_background_call_writes_while_its_claim_is_the_latest(
    conversation: Conversation, write: Callable[[CallClaim], object]
):
    claim = a_running_call(conversation)
    before = rows()
    write(claim)
    assert rows() != before


@pytest.mark.parametrize("write", CALL_WRITES.values(), ids=CALL_WRITES)
def test_a_background_call_with_an_older_claim_writes_nothing(
    conversation: Conversation, write: Callable[[CallClaim], object]
):
    claim = a_stale_call_claim(conversation)
    before = rows()
    write(claim)
    assert rows() == before


def test_a_background_call_learns_that_its_claim_is_an_older_one(
    conversation: Conversation,
):
    claim = a_stale_call_claim(conversation)
    assert background_store.renew({claim: ""}) == ([claim], [])
