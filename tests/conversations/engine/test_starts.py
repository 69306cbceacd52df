"""Turns that start at once: MAX_STARTS of them, the others wait for their place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.contrib.auth.models import User

from conversations.engine import claim_store
from conversations.engine.database.executor import Database
from conversations.engine.dispatcher import MAX_STARTS
from conversations.engine.engine import Engine
from conversations.engine.event_log import MemoryLog
from conversations.engine.notifications import (
    announce_branches,
    group_of,
    open_pages,
    remove_open_page,
)
from conversations.models import Conversation, OpenedTurn, Turn
from llm.http import client
from llm.models import ApiKey, LanguageModel, Provider
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import user_message
from tests.conversations.script import Script

TURNS = MAX_STARTS + 6
PATIENT = 60.0  # seconds; no test takes as many


@pytest.fixture
def conversations(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> list[Conversation]:
    owner = User.objects.create_user("ada")
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(provider=provider, name="demo")
    answer = [TextDelta(0, "Hello."), FinishDelta("stop")]
    monkeypatch.setattr(client, "stream", Script(*[answer] * TURNS))
    return [
        Conversation.objects.create(owner=owner, language_model=model)
        for _ in range(TURNS)
    ]


@pytest.fixture
async def database() -> AsyncGenerator[Database, None]:
    database = Database()
    yield database
    await database.close()


async def test_a_heartbeat_does_not_wait_behind_all_turns_that_start(
    conversations: list[Conversation], database: Database
):
    engine, opened = Engine(MemoryLog(), database), list[str]()
    busy = threading.Event()
    holding = database.write(busy.wait, PATIENT)
    opening = [
        asyncio.ensure_future(engine.open(_opener_with_items(conversation, opened)))
        for conversation in conversations
    ]
    await _run_other_tasks()
    beat = database.beat(lambda: list(opened))
    busy.set()
    assert await holding
    assert len(await beat) <= MAX_STARTS
    turns = await asyncio.gather(*opening)
    assert opened == [conversation.pk for conversation in conversations]
    assert await _ends(engine, turns) == ["completed"] * TURNS
    await engine.drain(grace=PATIENT)


async def test_a_caller_that_is_cancelled_leaves_the_queue_or_abandons_its_turn(
    conversations: list[Conversation], database: Database
):
    engine, opened = Engine(MemoryLog(), database), list[str]()
    abandoned: list[str] = []
    busy = threading.Event()
    holding = database.write(busy.wait, PATIENT)

    def abandon(turn: Turn) -> None:
        abandoned.append(turn.conversation_id)

    callers = [
        asyncio.ensure_future(
            engine.open(_opener_with_items(conversation, opened), abandon=abandon)
        )
        for conversation in conversations
    ]
    await _run_other_tasks()
    for caller in (callers[0], callers[-1]):
        caller.cancel()
    busy.set()
    assert await holding
    turns = await asyncio.gather(*callers, return_exceptions=True)
    started = [turn for turn in turns if isinstance(turn, Turn)]
    assert await _ends(engine, started) == ["completed"] * (TURNS - 2)
    names = [conversation.pk for conversation in conversations]
    assert opened == names[:-1]
    assert abandoned == names[:1]
    await engine.drain(grace=PATIENT)


async def test_a_turn_that_waits_to_start_can_be_stopped(
    conversations: list[Conversation], database: Database
):
    engine, busy = Engine(MemoryLog(), database), threading.Event()
    turns = [await sync_to_async(_opener(each))() for each in conversations]
    holding = database.write(busy.wait, PATIENT)
    for turn in turns:
        engine.put(turn.pk)
    await _run_other_tasks()
    await sync_to_async(claim_store.request_cancel)(turns[-1].pk)
    engine.cancel(turns[-1].pk)
    busy.set()
    assert await holding
    expected = [*["completed"] * (TURNS - 1), "cancelled"]
    assert await _ends(engine, turns) == expected
    await engine.drain(grace=PATIENT)


async def test_a_drain_leaves_turns_that_wait_to_start_to_the_next_process(
    conversations: list[Conversation], database: Database
):
    engine, busy = Engine(MemoryLog(), database), threading.Event()
    turns = [await sync_to_async(_opener(each))() for each in conversations]
    holding = database.write(busy.wait, PATIENT)
    for turn in turns:
        engine.put(turn.pk)
    await _run_other_tasks()
    drain = asyncio.ensure_future(engine.drain(grace=PATIENT))
    await _run_other_tasks()
    busy.set()
    assert await holding
    await drain
    statuses = [turn.status async for turn in Turn.objects.order_by("created_at")]
    assert statuses.count("queued") == TURNS - MAX_STARTS
    claimable = await sync_to_async(claim_store.to_sweep)(TURNS)
    found = sorted(each.turn_id for each in claimable)
    assert found == sorted(turn.pk for turn in turns)


async def test_a_drain_waits_for_the_turns_that_are_being_opened(
    conversations: list[Conversation], database: Database
):
    engine, opened = Engine(MemoryLog(), database), list[str]()
    busy = threading.Event()
    holding = database.write(busy.wait, PATIENT)
    opening = [
        asyncio.ensure_future(engine.open(_opener_with_items(conversation, opened)))
        for conversation in conversations
    ]
    await _run_other_tasks()
    drain = asyncio.ensure_future(engine.drain(grace=PATIENT))
    await _run_other_tasks()
    busy.set()
    assert await holding
    await drain
    turns = await asyncio.gather(*opening)
    assert [turn.conversation_id for turn in turns] == opened
    assert len(opened) == TURNS


@pytest.mark.parametrize("is_page", [True, False])
async def test_an_open_page_hears_of_a_turn_that_it_has_not_opened(
    is_page: bool, conversations: list[Conversation], database: Database
):
    engine, conversation = Engine(MemoryLog(), database), conversations[0]
    layer = get_channel_layer()
    page = await layer.new_channel()
    await layer.group_add(group_of(conversation.pk), page)
    open_pages[conversation.pk] += 1
    try:
        turn = await engine.open(_opener_with_items(conversation, []), is_page=is_page)
        await engine.drain(grace=PATIENT)
    finally:
        remove_open_page(conversation.pk)
    await announce_branches(conversation.pk)  # comes after all others
    heard = await layer.receive(page)
    if is_page:
        assert heard == {"type": "branches.changed"}
    else:
        assert heard == {"type": "turn.queued", "turn": turn.pk}


@pytest.mark.parametrize("way", ["opened", "submitted"])
async def test_a_flood_of_one_user_delays_another_by_one_turn(
    way: str,
    conversations: list[Conversation],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
):
    """By messages of pages and stored responses, and by those of REST and forms."""
    settings.TURN_CONCURRENCY = 1
    runs, answer = asyncio.Event(), [TextDelta(0, "Hello."), FinishDelta("stop")]
    monkeypatch.setattr(client, "stream", Script([runs, *answer], answer))
    bob = await sync_to_async(User.objects.create_user)("bob")
    his = conversations[-1]
    his.owner = bob
    await his.asave()
    engine, turns = Engine(MemoryLog(), database), list[Turn]()
    for conversation in conversations:
        owner = conversation.owner_id
        if way == "opened":
            opener = _opener_with_items(conversation, [])
            turns.append(await engine.open(opener, owner))
        else:
            turns.append(await sync_to_async(_opener(conversation))())
            engine.submit(turns[-1].pk, conversation.pk, owner=owner)
    runs.set()
    assert await _ends(engine, turns) == ["completed"] * TURNS
    begun = Turn.objects.order_by("started_at").values_list("pk", flat=True)
    order = await sync_to_async(list)(begun)
    assert order.index(turns[-1].pk) <= 2  # one runs, one of the flood is before him
    await engine.drain(grace=PATIENT)


async def test_a_sweep_lets_users_who_come_later_pass_those_with_many_turns(
    conversations: list[Conversation],
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
):
    """As after a restart: it takes up a flood, and another user comes."""
    settings.TURN_CONCURRENCY = 1
    runs, answer = asyncio.Event(), [TextDelta(0, "Hello."), FinishDelta("stop")]
    monkeypatch.setattr(client, "stream", Script([runs, *answer], answer))
    bob = await sync_to_async(User.objects.create_user)("bob")
    *flood, his = conversations
    his.owner = bob
    await his.asave()
    turns = [await sync_to_async(_opener(each))() for each in flood]
    engine = Engine(MemoryLog(), database)
    await engine.sweep()
    turns.append(await engine.open(_opener_with_items(his, []), bob.pk))
    runs.set()
    assert await _ends(engine, turns) == ["completed"] * TURNS
    begun = Turn.objects.order_by("started_at").values_list("pk", flat=True)
    order = await sync_to_async(list)(begun)
    assert order.index(turns[-1].pk) <= 2
    await engine.drain(grace=PATIENT)


def _opener_with_items(
    conversation: Conversation, opened: list[str]
) -> Callable[[], OpenedTurn]:
    def open_turn() -> OpenedTurn:
        opened.append(conversation.pk)
        return conversation.open_turn([user_message("hello")])

    return open_turn


def _opener(conversation: Conversation) -> Callable[[], Turn]:
    return lambda: conversation.open_turn([user_message("hello")]).turn


async def _ends(engine: Engine, turns: list[Turn]) -> list[str]:
    """The statuses of the turns once all of them are over."""
    for turn in turns:
        async for _ in engine.subscribe(turn.pk, None):
            pass
        await turn.arefresh_from_db()
    return [turn.status for turn in turns]


async def _run_other_tasks() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
