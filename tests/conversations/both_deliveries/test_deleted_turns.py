"""Subscriptions to turns whose rows disappear end, in both deliveries."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from conversations import engine
from conversations.engine import DirectSink, Entry
from conversations.models import Conversation, Turn
from llm.wire.deltas import FinishDelta, ReasoningDelta, ToolCallDelta
from llm.wire.items import user_message
from tests.conversations.script import HANG
from tools.registry import Approval

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.smoke,
]

THINKING = [ReasoningDelta(0, "Well, "), HANG]
CALL = [ToolCallDelta(0, "c1", "dig", "{}"), FinishDelta("tool_calls")]


async def open_turn(conversation: Conversation) -> Turn:
    opened = await sync_to_async(conversation.open_turn)([user_message("Dig")])
    return opened.turn


@transaction.atomic
def open_and_delete(conversation: Conversation) -> Turn:
    """In one transaction: a worker would run the turn as soon as its row is there."""
    turn = conversation.open_turn([user_message("Dig")]).turn
    Turn.objects.filter(pk=turn.pk).delete()
    return turn


async def delete(turn: Turn) -> None:
    """As the admin does."""
    await Turn.objects.filter(pk=turn.pk).adelete()


async def watch(turn: Turn, begun: asyncio.Event, sink: DirectSink | None) -> None:
    async for batch in engine.subscribe(turn.pk, None, sink):
        if batch[-1].type != "response.in_progress":
            begun.set()


@pytest.mark.parametrize(
    ("calls", "sink"),
    [(THINKING, DirectSink(Entry.ws_frame, lambda data: True)), (CALL, None)],
)
async def test_subscriptions_end_when_a_turn_is_deleted(
    conversation, say, offer, running, calls, sink
):
    """While it runs, and while it waits for a person."""
    say(calls)
    offer(lambda context, given: "gold", approval=Approval(policy="always"))
    turn = await open_turn(conversation)
    engine.submit(turn.pk, conversation.pk)
    begun = asyncio.Event()
    watching = asyncio.create_task(watch(turn, begun, sink))
    await begun.wait()
    if calls is CALL:
        while turn.status != Turn.Status.WAITING:
            await asyncio.sleep(0)
            await turn.arefresh_from_db()
    await delete(turn)
    async with asyncio.timeout(30):
        with pytest.raises(engine.TurnDeleted):
            await watching


async def test_a_reader_of_a_turn_whose_row_has_just_gone_does_not_wait(
    conversation, running
):
    turn = await sync_to_async(open_and_delete)(conversation)
    async with asyncio.timeout(30):
        with pytest.raises(engine.TurnDeleted):
            await watch(turn, asyncio.Event(), None)
        with pytest.raises(engine.TurnDeleted):
            await engine.response_of(turn.pk)
        assert await engine.is_at_end(turn.pk, "1-1")
