"""Messages sent while a turn runs: that steer it, wait for it or interrupt it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine import turn_store
from conversations.engine.event_log import StaleEpoch
from conversations.models import Conversation, Item, Turn
from conversations.turns import waiting_messages
from conversations.turns.waiting_messages import When
from llm.wire.deltas import FinishDelta, ReasoningDelta, TextDelta, ToolCallDelta
from llm.wire.items import text_of, user_message
from llm.wire.request import Request
from tests.conversations.script import HANG, Script
from tools.registry import Approval

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = [TextDelta(0, "Done."), FinishDelta("stop")]
BOTH = [
    ReasoningDelta(0, "Two places."),
    ToolCallDelta(1, "c1", "dig", "{}"),
    ToolCallDelta(2, "c2", "dig", "{}"),
    FinishDelta("tool_calls"),
]


async def send(conversation: Conversation, text: str, when: When = "queue") -> Turn:
    opened = await sync_to_async(waiting_messages.open_message)(
        conversation, [user_message(text)], when
    )
    engine.submit(opened.turn.pk, conversation.pk)
    if opened.turn.steering:
        engine.notify_steering(conversation.pk)
    for interrupted in opened.interrupted:
        await sync_to_async(engine.cancel)(interrupted)
    return opened.turn


async def has_heard(turn: Turn) -> bool:
    """Whether the turn's run knows that a message waits for it."""
    return engine.require_engine().runs[turn.pk].record.has_new_results


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0)


async def ended(turn: Turn) -> Turn:
    async for _ in engine.subscribe(turn.pk):
        pass
    await turn.arefresh_from_db()
    return turn


def asked(request: Request) -> list[str]:
    return [text_of(item) for item in request.items if item.get("role") == "user"]


async def rows_of(turn: Turn) -> list[str]:
    """The turn's items in short: text of messages, else the type."""
    return [
        text_of(row.payload) or row.type
        async for row in Item.objects.filter(turn=turn).order_by("position")
    ]


async def test_a_message_joins_after_the_round_of_parallel_tools(
    conversation, say, offer, running
):
    """A thinking model calls two tools at once; two messages come while they run."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def dig(context: Any, arguments: dict[str, Any]) -> str:
        begun.set()
        await go.wait()
        return "gold"

    script: Script = say(BOTH, ANSWER)
    offer(dig, blocking=True)
    turn = await send(conversation, "Dig")
    await begun.wait()
    first = await send(conversation, "Deeper", "steer")
    second = await send(conversation, "And wider", "steer")
    go.set()
    await ended(turn)
    assert turn.status == Turn.Status.COMPLETED
    assert asked(script.requests[-1]) == ["Dig", "Deeper", "And wider"]
    assert await rows_of(turn) == [
        "Dig",
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "Deeper",
        "And wider",
        "Done.",
    ]
    assert not await Turn.objects.filter(pk__in=[first.pk, second.pk]).aexists()
    assert len(script.requests) == 2


async def test_a_message_that_comes_during_the_last_answer_continues_the_turn(
    conversation, say, running
):
    go = asyncio.Event()
    script = say([go, *ANSWER], [TextDelta(0, "Also that."), FinishDelta("stop")])
    turn = await send(conversation, "Hi")
    await until(lambda: is_asked(script, 1))
    await send(conversation, "And that", "steer")
    go.set()
    await ended(turn)
    assert await rows_of(turn) == ["Hi", "Done.", "And that", "Also that."]
    assert asked(script.requests[-1]) == ["Hi", "And that"]
    assert await conversation.turns.acount() == 1


async def is_asked(script: Script, times: int) -> bool:
    return len(script.requests) >= times


async def test_a_message_that_comes_too_late_to_steer_is_answered_next(
    conversation, say, running
):
    """The running turn has no step left."""
    script = say([HANG], ANSWER)
    turn = await send(conversation, "Hi")
    await until(lambda: is_asked(script, 1))
    later = await send(conversation, "And that", "steer")
    await sync_to_async(engine.cancel)(turn)
    await ended(later)
    assert later.status == Turn.Status.COMPLETED
    assert asked(script.requests[-1]) == ["Hi", "And that"]


async def test_a_later_turn_reads_the_steered_turn_as_it_was(
    conversation, say, running
):
    go = asyncio.Event()
    script = say([go, *ANSWER], ANSWER, ANSWER)
    turn = await send(conversation, "Hi")
    await until(lambda: is_asked(script, 1))
    await send(conversation, "Queued")
    await send(conversation, "Steers", "steer")
    go.set()
    await ended(turn)
    await until(lambda: is_asked(script, 3))
    roles = [(i["role"], text_of(i)) for i in script.requests[-1].items]
    assert roles == [
        ("user", "Hi"),
        ("assistant", "Done."),
        ("user", "Steers"),
        ("assistant", "Done."),
        ("user", "Queued"),
    ]


@pytest.mark.parametrize("at", ["before the write", "after the write"])
async def test_a_process_that_dies_meanwhile_neither_loses_nor_repeats_a_message(
    conversation, say, settings, monkeypatch, at
):
    """The write of the items is the border; the process ends on either side of it."""
    settings.DRAIN_GRACE = 0.01
    go, dead = asyncio.Event(), asyncio.Event()
    script = say([go, *ANSWER], ANSWER)
    advance = turn_store.advance

    def die(claim: Any, progress: Any) -> None:
        if not progress.absorbed or dead.is_set():
            return advance(claim, progress)
        if at == "after the write":
            advance(claim, progress)
        dead.set()
        Turn.objects.filter(pk=claim.turn_id).update(epoch=claim.epoch + 1)
        raise StaleEpoch

    monkeypatch.setattr(turn_store, "advance", die)
    await engine.start()
    turn = await send(conversation, "Hi")
    await until(lambda: is_asked(script, 1))
    message = await send(conversation, "And that", "steer")
    # Otherwise the answer may be written before the message comes.
    await until(lambda: has_heard(turn))
    go.set()
    await dead.wait()
    await engine.drain()
    await Turn.objects.filter(pk=turn.pk).aupdate(lease_until="2000-01-01T00:00:00Z")
    await engine.start()
    try:
        await ended(turn)
        told = ["And that", "Done."]  # an answer that was not stored is repeated
        stored = ["Done."] if at == "after the write" else []
        assert await rows_of(turn) == ["Hi", *stored, *told]
        assert asked(script.requests[-1]) == ["Hi", "And that"]
        assert not await Turn.objects.filter(pk=message.pk).aexists()
    finally:
        await engine.drain()


async def test_a_turn_that_waits_for_a_person_takes_no_message(
    conversation, say, offer, running
):
    async def dig(context: Any, arguments: dict[str, Any]) -> str:
        return "gold"

    script = say(BOTH, ANSWER)
    offer(dig, blocking=True, approval=Approval(policy="always"))
    turn = await send(conversation, "Dig")

    async def waits() -> bool:
        return await Turn.objects.filter(pk=turn.pk, status="waiting").aexists()

    await until(waits)
    message = await send(conversation, "Deeper", "steer")
    await message.arefresh_from_db()
    assert message.status == Turn.Status.QUEUED
    questions = [q async for q in _open_questions(turn)]
    for question in questions:
        if await sync_to_async(question.decide)(conversation.owner, "accept"):
            engine.submit(turn.pk, conversation.pk)
    await ended(turn)
    assert asked(script.requests[-1]) == ["Dig", "Deeper"]
    assert (await rows_of(turn))[-2:] == ["Deeper", "Done."]


def _open_questions(turn: Turn) -> Any:
    from conversations.models import Question

    rows = Question.objects.open().filter(tool_call__turn=turn)
    return rows.select_related("tool_call__turn__conversation")


async def test_an_interrupting_message_runs_before_the_waiting_ones(
    conversation, say, running
):
    script = say([TextDelta(0, "Part"), HANG], ANSWER, ANSWER)
    turn = await send(conversation, "Hi")
    await until(lambda: is_asked(script, 1))
    waiting = await send(conversation, "Later")
    now = await send(conversation, "Now", "interrupt")
    await ended(turn)
    await ended(now)
    await ended(waiting)
    assert turn.status == Turn.Status.CANCELLED
    assert await rows_of(turn) == ["Hi", "Part"]
    assert asked(script.requests[1]) == ["Hi", "Now"]
    assert asked(script.requests[2]) == ["Hi", "Now", "Later"]
