"""A turn whose question nobody answers in time fails, in both deliveries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine import question_store
from conversations.models import Conversation, Question, ToolCall, Turn
from llm.wire.deltas import (
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import user_message
from tools.registry import Approval

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.smoke,
]

#: A model that thinks and talks before it makes two calls at once.
CALLS = [
    ReasoningDelta(0, "Both at once."),
    TextDelta(1, "I shall dig twice."),
    ToolCallDelta(2, "c1", "dig", '{"at": 1}'),
    ToolCallDelta(3, "c2", "dig", '{"at": 2}'),
    UsageDelta(7, 5),
    FinishDelta("tool_calls"),
]
ANSWER = [TextDelta(0, "Another day, then."), FinishDelta("stop")]
LONG_AGO = "2001-02-03T00:00:00Z"


async def ask(conversation: Conversation, text: str = "Dig") -> Turn:
    opened = await sync_to_async(conversation.open_turn)([user_message(text)])
    turn = opened.turn
    engine.submit(turn.pk, conversation.pk)
    return turn


async def events_of(turn: Turn) -> list[dict[str, Any]]:
    return [e.event async for batch in engine.subscribe(turn.pk) for e in batch]


async def wait_for(turn: Turn, status: str) -> None:
    async with asyncio.timeout(30):
        while turn.status != status:
            await asyncio.sleep(0)
            await turn.arefresh_from_db()


def _expire() -> None:
    Question.objects.open().update(expires_at=LONG_AGO)


def _expire_and_queue() -> None:
    """The process ends before the turn does."""
    _expire()
    assert question_store.expire_questions()


@pytest.mark.parametrize(
    ("is_running", "expire"),
    [(True, _expire), (False, _expire), (False, _expire_and_queue)],
)
async def test_a_turn_fails_by_name_if_nobody_approves_in_time(
    conversation, say, offer, is_running, expire
):
    """What was approved beside it does not run either; what people have read stays."""
    runs: list[Any] = []
    script = say(CALLS, ANSWER)
    offer(
        lambda context, given: runs.append(given),
        blocking=True,
        approval=Approval(policy="always"),
    )
    await engine.start()
    try:
        turn = await ask(conversation)
        await wait_for(turn, Turn.Status.WAITING)
        one = await Question.objects.select_related("tool_call").afirst()
        assert not await sync_to_async(one.decide)(conversation.owner, "accept")
        watching = asyncio.create_task(events_of(turn))
        if not is_running:
            await engine.drain()
            await watching
        await sync_to_async(expire)()
        if not is_running:
            await engine.start()
            watching = asyncio.create_task(events_of(turn))
        async with asyncio.timeout(30):
            await _check(turn, await watching)
        await _check(turn, await events_of(turn))  # a later subscriber
        assert len(script.requests) == 1
        assert runs == []
        next_turn = await ask(conversation, "Not today?")
        assert (await events_of(next_turn))[-1]["type"] == "response.completed"
        _check_history(script.requests[-1].items)
    finally:
        await engine.drain()


async def _check(turn: Turn, events: list[dict[str, Any]]) -> None:
    *_, error, failed = events
    assert error["error"]["code"] == "approval_expired"
    assert failed["type"] == "response.failed"
    assert failed["response"]["error"]["code"] == "E_APPROVAL_EXPIRED"
    assert "end the message again" in failed["response"]["error"]["message"]
    types = [item["type"] for item in failed["response"]["output"]]
    assert types == ["reasoning", "message", "function_call", "function_call"]
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.FAILED
    assert turn.error["code"] == "E_APPROVAL_EXPIRED"
    calls = ToolCall.objects.filter(turn=turn)
    assert {call.state async for call in calls} == {ToolCall.State.CANCELLED}
    states = {question.state async for question in Question.objects.all()}
    assert states == {Question.State.ACCEPTED, Question.State.EXPIRED}


def _check_history(items: Any) -> None:
    """Providers refuse a call without an output."""
    calls = {i["call_id"] for i in items if i["type"] == "function_call"}
    outputs = {i["call_id"] for i in items if i["type"] == "function_call_output"}
    assert calls == outputs
