"""State of a turn across claims: its deadline and its claims without progress."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import OperationalError, transaction
from django.utils import timezone

from conversations import engine
from conversations.engine import (
    background_store,
    claim_store,
    lease_store,
    question_store,
    staff_actions,
    turn_store,
)
from conversations.engine.claim_store import Claim
from conversations.engine.database import sql
from conversations.engine.lease_store import Snapshot
from conversations.engine.loading.turn_loader import ClaimAttempt, claim_and_load
from conversations.engine.progress_store import TurnProgress
from conversations.engine.question_store import NewQuestion
from conversations.models import Conversation, Item, Question, ToolCall, Turn
from llm.wire.deltas import TextDelta
from llm.wire.items import message, user_message
from tests.conversations.both_deliveries.test_background import (
    ANSWER,
    calling,
    ended,
    submit_turn,
    swept,
)
from tests.conversations.script import HANG
from tools.models import HttpTool, Tool
from tools.registry import Approval, Context, FormAnswer

pytestmark = pytest.mark.django_db(transaction=True)

PAST = timedelta(minutes=-1)


@transaction.atomic
def opened(
    conversation: Conversation, *, author: User | None = None, **fields: Any
) -> Turn:
    """In one transaction: a worker runs the turn as soon as its row is there."""
    turn = conversation.open_turn([user_message("Hi")], author=author).turn
    if fields:
        Turn.objects.filter(pk=turn.pk).update(**fields)
    return turn


def to_sweep(limit: int) -> list[str]:
    return [turn.turn_id for turn in claim_store.to_sweep(limit)]


def claimed(turn: Turn, **how: Any) -> Claim:
    claim = claim_store.claim(turn.pk, **how)
    assert claim is not None
    return claim


def crashed(turn: Turn) -> None:
    """The process that ran it is lost."""
    Turn.objects.filter(pk=turn.pk).update(lease_until=timezone.now() + PAST)


def came_further(claim: Claim) -> None:
    snapshot = (message("assistant", "Well"), None, 3)
    turn_store.advance(
        claim, TurnProgress(items=[snapshot], first_position=9, last_sequence=3)
    )


def test_a_claim_reads_the_turn_as_it_leaves_it(conversation):
    claim, turn = claim_store.claim_and_read(opened(conversation).pk)
    assert claim is not None
    assert claim_store.claim_and_read(claim.turn_id) == (None, None)
    stored = Turn.objects.get(pk=claim.turn_id)
    read = turn or stored  # SQLite's is read later
    names = [field.attname for field in Turn._meta.concrete_fields]
    assert [getattr(read, n) for n in names] == [getattr(stored, n) for n in names]
    assert (read.epoch, read.status) == (claim.epoch, Turn.Status.RUNNING)
    assert read.conversation.owner == conversation.owner


def test_authors_are_served_in_turn(conversation):
    bob = User.objects.create_user("bob")
    own = Conversation.objects.create(
        owner=bob, language_model=conversation.language_model
    )
    many = [opened(another_of(conversation)).pk for _ in range(4)]
    one = opened(own).pk
    assert to_sweep(9) == [many[0], one, *many[1:]]
    for turn_id in many[:2]:
        assert claim_store.claim(turn_id)
    assert to_sweep(1) == [one]  # two run already of the other author
    guest = opened(another_of(conversation), author=bob).pk  # counts as bob's
    assert to_sweep(9) == [one, guest, *many[2:]]


def test_a_turn_that_waits_long_comes_before_new_ones_of_others(conversation):
    bob = User.objects.create_user("bob")
    own = Conversation.objects.create(
        owner=bob, language_model=conversation.language_model
    )
    assert claim_store.claim(opened(another_of(conversation)).pk)
    second, one = opened(another_of(conversation)).pk, opened(own).pk
    assert to_sweep(9) == [one, second]
    Turn.objects.filter(pk=second).update(
        created_at=timezone.now() - timedelta(minutes=2)
    )
    assert to_sweep(9) == [second, one]


def another_of(conversation: Conversation) -> Conversation:
    return Conversation.objects.create(
        owner=conversation.owner, language_model=conversation.language_model
    )


# Time


def test_a_turns_time_is_not_given_anew_with_each_claim(conversation, settings):
    turn = opened(conversation)
    first = claimed(turn)
    assert first.seconds_left == pytest.approx(settings.TURN_DEADLINE, abs=1)
    Turn.objects.filter(pk=turn.pk).update(
        deadline_at=timezone.now() + timedelta(seconds=100)
    )
    crashed(turn)
    assert claimed(turn).seconds_left == pytest.approx(100, abs=5)


async def test_a_turn_past_its_deadline_makes_no_further_call(
    conversation, say, running
):
    script = say(ANSWER)
    past = timezone.now() + PAST
    turn = await sync_to_async(opened)(conversation, deadline_at=past)
    engine.submit(turn.pk, conversation.pk)
    await ended(turn)
    assert (turn.status, turn.incomplete_reason) == ("incomplete", "deadline")
    assert script.requests == []


def test_the_deadline_is_paused_while_a_turn_waits_for_a_person(conversation, settings):
    turn = opened(conversation)
    question_store.suspend(claimed(turn), TurnProgress(), [], 70.0)
    turn.refresh_from_db()
    assert (turn.deadline_at, turn.seconds_left) == (None, 70.0)
    assert claimed(turn).seconds_left == 70.0
    turn.refresh_from_db()
    assert turn.seconds_left is None
    left = (turn.deadline_at - timezone.now()).total_seconds()
    assert left == pytest.approx(70, abs=5)


def test_the_deadline_is_paused_while_no_process_runs(conversation):
    """A server may be down for hours between a drain and its next start."""
    turn = opened(conversation)
    turn_store.release(claimed(turn), [], [], None, 70.0)
    turn.refresh_from_db()
    assert (turn.deadline_at, turn.seconds_left) == (None, 70.0)
    assert claimed(turn).seconds_left == 70.0
    turn.refresh_from_db()
    assert turn.deadline_at is not None


async def test_a_turn_that_a_drain_stops_notes_what_is_left_of_its_time(
    conversation, say, running, settings
):
    say([TextDelta(0, "Half"), HANG])
    turn = await submit_turn(conversation)
    while not await Turn.objects.filter(pk=turn.pk, status="in_progress").aexists():
        await asyncio.sleep(0)
    settings.DRAIN_GRACE = 0
    await engine.drain()
    await turn.arefresh_from_db()
    assert turn.deadline_at is None
    assert 0 < turn.seconds_left <= settings.TURN_DEADLINE


async def test_a_turn_that_waits_notes_what_is_left_of_its_time(
    conversation,
    say,
    offer,
    running,
    settings,
):
    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        return "gold"

    say(calling(), ANSWER)
    offer(dig, blocking=True, approval=Approval(policy="always"))
    turn = await submit_turn(conversation)
    while not await Question.objects.aexists():
        await asyncio.sleep(0)
    await turn.arefresh_from_db()
    assert turn.deadline_at is None
    assert 0 < turn.seconds_left <= settings.TURN_DEADLINE
    question = await Question.objects.select_related("tool_call").aget()
    if await sync_to_async(question.decide)(conversation.owner, "accept"):
        engine.submit(turn.pk, conversation.pk)
    await ended(turn)
    assert turn.status == Turn.Status.COMPLETED


async def test_a_question_is_shown_though_the_deadline_passes_as_it_is_stored(
    conversation, say, offer, running, monkeypatch
):
    suspend, loop = question_store.suspend, asyncio.get_running_loop()
    stopped = threading.Event()

    def stop(turn_id: str) -> None:
        engine.require_engine().dispatcher.runs[turn_id].state.cancel("deadline")
        stopped.set()

    def suspend_late(claim: Claim, *values: Any) -> list[Question]:
        questions = suspend(claim, *values)
        if not stopped.is_set():
            loop.call_soon_threadsafe(stop, claim.turn_id)
            stopped.wait()
        return questions

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        return "gold"

    monkeypatch.setattr(question_store, "suspend", suspend_late)
    say(calling(), ANSWER)
    offer(dig, blocking=True, approval=Approval(policy="always"))
    turn = await submit_turn(conversation)
    async with asyncio.timeout(30):
        async for entries in engine.subscribe(turn.pk):
            if any(each.type == "parley:approval.requested" for each in entries):
                break
    question = await Question.objects.select_related("tool_call").aget()
    if await sync_to_async(question.decide)(conversation.owner, "accept"):
        engine.submit(turn.pk, conversation.pk)
    await ended(turn)
    assert turn.status == Turn.Status.COMPLETED


async def test_the_deadline_is_paused_while_a_form_is_open(
    conversation,
    say,
    offer,
    running,
):
    seen: list[FormAnswer] = []
    go = asyncio.Event()

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        seen.append(await context.asking("Where?", {"type": "object"}))
        await go.wait()
        return "gold"

    say(calling(), ANSWER)
    offer(dig, blocking=True)
    turn = await submit_turn(conversation)
    waits = Turn.objects.filter(pk=turn.pk, deadline_at=None, seconds_left__gt=0)
    while not await waits.aexists():
        await asyncio.sleep(0)
    question = await Question.objects.select_related("tool_call").aget()
    await sync_to_async(question.decide)(conversation.owner, "decline")
    engine.notify_decision(question)
    while not await Turn.objects.filter(pk=turn.pk, seconds_left=None).aexists():
        await asyncio.sleep(0)
    await turn.arefresh_from_db()
    assert turn.deadline_at > timezone.now()
    go.set()
    await ended(turn)
    assert seen == [FormAnswer("decline")]


@pytest.mark.parametrize("replay", ["once", "safe"])
def test_a_form_is_closed_once_another_run_takes_its_call_over(conversation, replay):
    Tool.objects.create(
        name="dig", kind=Tool.Kind.HTTP, description="Dig.", replay=replay
    )
    call = called(conversation)
    ToolCall.objects.update(blocking=True)
    mine = claimed(call.turn)
    form = question_store.ask(mine, "c1", NewQuestion(kind=Question.Kind.FORM))
    crashed(call.turn)
    assert claim_and_load(ClaimAttempt(call.turn_id))
    form.refresh_from_db()
    assert form.state == Question.State.CANCELLED


async def test_a_form_outlasts_an_error_of_the_database(
    conversation, say, offer, running, monkeypatch
):
    seen: list[FormAnswer] = []
    find, failures = question_store.find_decided_question, [OperationalError("gone")]

    def fail_first(question_id: str) -> Question | None:
        if failures:
            raise failures.pop()
        return find(question_id)

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        seen.append(await context.asking("Where?", {"type": "object"}))
        return "gold"

    monkeypatch.setattr(question_store, "find_decided_question", fail_first)
    say(calling(), ANSWER)
    offer(dig, blocking=True)
    turn = await submit_turn(conversation)
    while failures or not await Question.objects.aexists():
        await asyncio.sleep(0)
    question = await Question.objects.select_related("tool_call").aget()
    await sync_to_async(question.decide)(conversation.owner, "decline")
    engine.notify_decision(question)
    await ended(turn)
    assert seen == [FormAnswer("decline")]


async def test_a_form_is_closed_when_its_run_cannot_wait_for_the_answer(
    conversation, say, offer, running, monkeypatch
):
    def fail(question_id: str) -> None:
        raise ValueError("bug")

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        with pytest.raises(ValueError, match="bug"):
            await context.asking("Where?", {"type": "object"})
        cancelled = Question.objects.filter(state=Question.State.CANCELLED)
        while not await cancelled.aexists():
            await asyncio.sleep(0)
        return "gold"

    monkeypatch.setattr(question_store, "find_decided_question", fail)
    say(calling(), ANSWER)
    offer(dig, blocking=True)
    turn = await submit_turn(conversation)
    await ended(turn)
    call = await ToolCall.objects.aget()
    assert call.state == ToolCall.State.COMPLETED


# Claims without progress


def test_a_turn_that_comes_no_further_is_to_run_alone(conversation):
    turn = opened(conversation)
    for _ in range(sql.TRUSTED):
        claimed(turn)
        assert claim_store.claim(turn.pk) is None
        crashed(turn)
    assert claim_store.claim(turn.pk) is None
    assert (to_sweep(9), claim_store.suspects(9)) == (
        [],
        [(turn.pk, False)],
    )
    assert claimed(turn, alone=True).claims_without_progress == sql.TRUSTED + 1


@pytest.mark.parametrize("how", ["items", "text"])
def test_a_turn_that_comes_further_is_trusted_again(conversation, how):
    turn = opened(conversation)
    for _ in range(9):
        mine = claimed(turn)
        if how == "items":
            came_further(mine)
            Item.objects.filter(turn=turn, origin="output").delete()
        else:
            items = [message("assistant", "Well")]
            lease_store.heartbeat({mine: Snapshot(items, 5, is_progress=True)})
        crashed(turn)
    assert claim_store.suspects(9) == []
    assert claimed(turn).claims_without_progress == 1


def test_the_same_text_once_more_is_no_progress(conversation):
    turn = opened(conversation)
    for _ in range(sql.TRUSTED):
        lease_store.heartbeat({claimed(turn): Snapshot([message("assistant", "W")], 5)})
        crashed(turn)
    assert claim_store.suspects(9) == [(turn.pk, False)]


def test_a_turn_that_was_taken_up_too_often_or_is_to_stop_is_ended_by_anybody(
    conversation, settings
):
    turn = opened(conversation)
    Turn.objects.filter(pk=turn.pk).update(claims=settings.TURN_MAX_CLAIMS)
    assert to_sweep(9) == [turn.pk]
    Turn.objects.filter(pk=turn.pk).update(claims=3, cancel_requested=True)
    assert to_sweep(9) == [turn.pk]


def test_an_orderly_handover_makes_no_suspect(conversation):
    turn = opened(conversation)
    for _ in range(9):
        turn_store.release(claimed(turn), [], [])
    assert to_sweep(9) == [turn.pk]


def test_staff_have_a_suspect_begun_anew(conversation):
    turn = opened(conversation)
    Turn.objects.filter(pk=turn.pk).update(claims=3, deadline_at=timezone.now() + PAST)
    assert staff_actions.retry(turn.pk)
    claim = claimed(turn)
    assert claim.claims_without_progress == 1
    assert claim.seconds_left > 0


# A suspect runs alone


async def a_suspect(conversation: Conversation, claims: int = sql.TRUSTED) -> Turn:
    other = await Conversation.objects.acreate(
        owner_id=conversation.owner_id, language_model_id=conversation.language_model_id
    )
    return await sync_to_async(opened)(other, claims=claims)


async def wait_for_requests(script: Any, number: int) -> None:
    while len(script.requests) < number:
        await asyncio.sleep(0)


async def test_a_suspect_waits_for_the_turns_under_way_and_others_for_it(
    conversation, say, running
):
    first, alone = asyncio.Event(), asyncio.Event()
    script = say([first, *ANSWER], [alone, *ANSWER], ANSWER)
    turn = await submit_turn(conversation)
    await wait_for_requests(script, 1)
    suspect = await a_suspect(conversation)
    engine.submit(suspect.pk, suspect.conversation_id)
    await swept()
    await suspect.arefresh_from_db()
    assert suspect.status == Turn.Status.QUEUED
    first.set()
    await ended(turn)
    while suspect.status == Turn.Status.QUEUED:
        await swept()
        await suspect.arefresh_from_db()
    await wait_for_requests(script, 2)
    later = await submit_turn(conversation, "And?")
    await swept()
    assert len(script.requests) == 2
    alone.set()
    await ended(suspect)
    await ended(later)
    assert (suspect.status, later.status) == ("completed", "completed")
    assert len(script.requests) == 3


async def test_others_begin_once_a_suspect_has_come_further(conversation, say, running):
    script = say([TextDelta(0, "Well"), HANG], ANSWER)
    suspect = await a_suspect(conversation)
    while not script.requests:
        await swept()
    later = await submit_turn(conversation)
    await engine.require_engine().beat()
    await ended(later)
    await suspect.arefresh_from_db()
    assert (suspect.status, suspect.claims_until_progress) == (
        "in_progress",
        sql.TRUSTED + 1,
    )
    await sync_to_async(engine.cancel)(suspect)
    await ended(suspect)


async def test_a_suspect_does_not_wait_for_ever(
    conversation, say, running, monkeypatch
):
    monkeypatch.setattr("conversations.engine.suspect_turns.PATIENCE", 0)
    gate = asyncio.Event()
    script = say([gate, *ANSWER], ANSWER)
    turn = await submit_turn(conversation)
    await wait_for_requests(script, 1)
    suspect = await a_suspect(conversation)
    await swept()
    assert (await ended(suspect)).status == "completed"
    gate.set()
    await ended(turn)


async def test_a_suspect_of_the_first_time_begins_beside_turns_that_have_progressed(
    conversation, say, running
):
    script = say([TextDelta(0, "Well"), HANG], ANSWER)
    turn = await submit_turn(conversation)
    await wait_for_requests(script, 1)
    await engine.require_engine().beat()
    first = await a_suspect(conversation)
    again = await a_suspect(conversation, claims=sql.TRUSTED + 1)
    await swept()
    assert (await ended(first)).status == "completed"
    await swept()
    await again.arefresh_from_db()
    assert (again.status, len(script.requests)) == (Turn.Status.QUEUED, 2)
    await sync_to_async(engine.cancel)(turn)
    await ended(turn)
    await sync_to_async(engine.cancel)(again)
    await ended(again)


async def test_a_suspect_that_is_under_way_is_not_begun_once_more(
    conversation, say, running
):
    script = say([TextDelta(0, "Well"), HANG], ANSWER)
    turn = await submit_turn(conversation)
    await wait_for_requests(script, 1)
    engine.require_engine().dispatcher.put_alone(turn.pk, is_repeated=False)
    await sync_to_async(engine.cancel)(turn)
    assert (await ended(turn)).status == "cancelled"
    suspect = await a_suspect(conversation)
    await swept()
    assert (await ended(suspect)).status == "completed"


# Calls in the background


def called(conversation: Conversation) -> ToolCall:
    turn = opened(conversation)
    call = ToolCall.objects.create(
        turn=turn, call_id="c1", name="dig", state="executing", blocking=False
    )
    payload = {"type": "function_call", "id": "f", "call_id": "c1", "name": "dig"}
    payload |= {"arguments": "{}", "status": "completed"}
    Item.of(turn, 1, payload, origin=Item.Origin.OUTPUT).save()
    return call


@pytest.mark.parametrize(
    ("replay", "state"), [("once", "unknown"), ("safe", None), ("idempotent", None)]
)
def test_a_call_of_a_lost_process_runs_again_only_if_repeatable(
    conversation, replay, state
):
    tool = Tool.objects.create(
        name="dig", kind=Tool.Kind.HTTP, description="Dig.", replay=replay
    )
    HttpTool.objects.create(tool=tool, method="POST", url="https://mine.example/dig")
    call = called(conversation)
    for expected in (None, state):
        mine = background_store.claim(call.pk)
        assert mine is not None
        outcome = background_store.load(mine).outcome
        assert (outcome and outcome.state) == expected
        ToolCall.objects.update(lease_until=timezone.now() + PAST)


def test_a_call_that_ends_its_process_is_given_up(conversation):
    call = called(conversation)
    for _ in range(background_store.MAX_CLAIMS):
        assert background_store.claim(call.pk)
        ToolCall.objects.update(lease_until=timezone.now() + PAST)
    mine = background_store.claim(call.pk)
    assert mine is not None
    work = background_store.load(mine)
    assert work.outcome is not None
    assert work.outcome.state == "unknown"


def test_a_call_that_is_handed_over_in_order_is_not_given_up(conversation):
    call = ToolCall.objects.create(
        turn=opened(conversation), call_id="c1", state="executing", blocking=False
    )
    for _ in range(9):
        mine = background_store.claim(call.pk)
        assert mine is not None
        background_store.release([mine])
    call.refresh_from_db()
    assert call.claims == 0
