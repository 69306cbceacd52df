"""Which worker takes a turn that all are notified of."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError

from conversations import engine, turn_queue
from conversations.engine import claim_store
from conversations.engine import engine as engine_module
from conversations.engine.database.turn_notices import TurnNotice
from conversations.engine.process.fair_turns import ClaimableTurn
from conversations.engine.shared_log.transport import open_transport
from conversations.models import Turn
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import user_message

pytestmark = pytest.mark.skipif(
    not settings.IS_SCALED, reason="a process alone gets no notices"
)
ANSWER = [TextDelta(0, "Hello."), FinishDelta("stop")]


@pytest.fixture
def unnoticed(monkeypatch):
    """Turns are opened without a notice."""
    monkeypatch.setattr(turn_queue, "enqueue", lambda turn_id: None)
    monkeypatch.setattr(turn_queue, "find_call", lambda *ids, is_first: None)


@pytest.fixture
def unswept(monkeypatch):
    """After its start the engine sweeps no more."""
    monkeypatch.setattr(engine_module, "SWEEP", 3600.0)


async def opened(conversation: Any) -> Turn:
    items = [user_message("Hi")]
    return (await sync_to_async(conversation.open_turn)(items)).turn


async def status_at_the_end(turn: Turn) -> str:
    async for _ in engine.subscribe(turn.pk, None):
        pass
    await turn.arefresh_from_db()
    return str(turn.status)


def is_taken_at_once(turn: Turn, *, is_first: bool) -> bool:
    here = engine.require_engine()
    here.receive_notice(TurnNotice(turn.pk, turn.conversation_id, is_first))
    return turn.pk in here.dispatcher.active_turns


async def test_a_first_turn_is_taken_at_once(conversation, say, running, unnoticed):
    say(ANSWER)
    turn = await opened(conversation)
    assert is_taken_at_once(turn, is_first=True)
    assert await status_at_the_end(turn) == Turn.Status.COMPLETED


async def test_the_worker_of_the_last_turn_takes_the_next_at_once(
    conversation, say, running, unnoticed
):
    say(ANSWER)
    first = await opened(conversation)
    assert is_taken_at_once(first, is_first=True)
    await status_at_the_end(first)
    turn = await opened(conversation)
    assert is_taken_at_once(turn, is_first=False)
    assert await status_at_the_end(turn) == Turn.Status.COMPLETED


async def test_another_worker_takes_it_a_moment_later(
    conversation, say, running, unnoticed
):
    say(ANSWER)
    turn = await opened(conversation)
    assert not is_taken_at_once(turn, is_first=False)
    assert await status_at_the_end(turn) == Turn.Status.COMPLETED


async def test_turns_left_for_want_of_room_outlast_an_error_of_the_database(
    conversation, say, unswept, running, unnoticed, monkeypatch, settings
):
    say(ANSWER)
    turn = await opened(conversation)
    find, failures = claim_store.to_sweep, [OperationalError("gone"), ValueError("bug")]

    def fail_first(limit: int) -> list[ClaimableTurn]:
        if failures:
            raise failures.pop()
        return find(limit)

    monkeypatch.setattr(claim_store, "to_sweep", fail_first)
    room, settings.TURN_CONCURRENCY = settings.TURN_CONCURRENCY, 0
    assert not is_taken_at_once(turn, is_first=True)
    settings.TURN_CONCURRENCY = room
    assert await status_at_the_end(turn) == Turn.Status.COMPLETED
    assert not failures


async def test_a_turn_that_was_claimed_meanwhile_is_left_alone(
    conversation, say, running, unnoticed
):
    script = say(ANSWER)
    taken, own = await opened(conversation), None
    await sync_to_async(claim_store.claim)(taken.pk)
    assert not is_taken_at_once(taken, is_first=False)
    own = await opened(await sync_to_async(another)(conversation))
    assert not is_taken_at_once(own, is_first=False)  # held back with the other
    assert await status_at_the_end(own) == Turn.Status.COMPLETED
    assert len(script.requests) == 1


@pytest.fixture
def has_one_place(settings):
    settings.TURN_CONCURRENCY = 1


async def test_a_flood_of_one_user_delays_another_by_his_share(
    conversation, say, unnoticed, has_one_place, running
):
    """Of turns for which no worker had room when they were announced."""
    is_announced = asyncio.Event()
    script = say([is_announced, *ANSWER], ANSWER)
    bob = await sync_to_async(User.objects.create_user)("bob")
    flood = [await sync_to_async(another)(conversation) for _ in range(6)]
    his = await sync_to_async(another)(conversation, bob)
    turns = [await opened(each) for each in [*flood, his]]
    for turn in turns:
        is_taken_at_once(turn, is_first=True)
    late = await opened(await sync_to_async(another)(conversation))
    assert not is_taken_at_once(late, is_first=True)
    is_announced.set()
    for turn in [*turns, late]:
        assert await status_at_the_end(turn) == Turn.Status.COMPLETED
    begun = Turn.objects.order_by("started_at").values_list("pk", flat=True)
    order = await sync_to_async(list)(begun)
    # One of the flood runs; at most one more began before.
    assert order.index(turns[-1].pk) <= 2
    assert len(script.requests) == len(order)


async def test_a_new_turn_takes_no_room_from_turns_that_wait_for_it(
    conversation, say, unnoticed, has_one_place, running
):
    ends = asyncio.Event()
    say([ends, *ANSWER], ANSWER)
    turns = [await opened(await sync_to_async(another)(conversation)) for _ in range(3)]
    first, waiting, new = turns
    assert is_taken_at_once(first, is_first=True)
    assert not is_taken_at_once(waiting, is_first=True)
    ends.set()
    dispatcher = engine.require_engine().dispatcher
    while first.pk in dispatcher.active_turns:
        await asyncio.sleep(0)
    assert not is_taken_at_once(new, is_first=True)
    for turn in turns:
        assert await status_at_the_end(turn) == Turn.Status.COMPLETED


async def test_stop_ends_a_turn_for_which_no_worker_has_room(
    conversation, say, unnoticed, has_one_place, running
):
    """By the notification of a process that runs no turns."""
    ends = asyncio.Event()
    script = say([ends, *ANSWER])
    first = await opened(conversation)
    assert is_taken_at_once(first, is_first=True)
    waiting = await opened(await sync_to_async(another)(conversation))
    assert not is_taken_at_once(waiting, is_first=True)
    await sync_to_async(claim_store.request_cancel)(waiting.pk)
    bus, _ = open_transport(lambda kind, ids: None)
    bus.start()
    async with asyncio.timeout(30):
        while waiting.status != Turn.Status.CANCELLED:
            await bus.publish_notification("cancel", waiting.pk)
            await waiting.arefresh_from_db()
    await bus.close()
    ends.set()
    assert await status_at_the_end(first) == Turn.Status.COMPLETED
    assert len(script.requests) == 1


def another(conversation: Any, owner: Any = None) -> Any:
    return type(conversation).objects.create(
        owner=owner or conversation.owner, language_model=conversation.language_model
    )


async def test_the_notice_says_what_the_worker_needs(conversation, say, running):
    """As PostgreSQL delivers it: the turn runs though no sweep looked for it."""
    say(ANSWER)
    turns = [await opened(conversation) for _ in range(2)]
    for turn in turns:
        assert await status_at_the_end(turn) == Turn.Status.COMPLETED


def test_a_notice_is_read():
    notice = TurnNotice.parse("resp_1 conv_1 t")
    assert notice == TurnNotice("resp_1", "conv_1", True)
    assert notice.payload == "resp_1 conv_1 t"
    assert not TurnNotice.parse("resp_2 conv_1 f").is_first
