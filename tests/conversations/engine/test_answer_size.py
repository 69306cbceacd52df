"""`MAX_ANSWER_SIZE`: a turn accepts so much of a model's output, and no more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine import event_log
from conversations.models import Conversation, Item, Turn
from llm.models import ModelCall
from llm.wire.deltas import (
    CloseDelta,
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import text_of, user_message
from tests.integration.clients import Program, Screen
from tests.integration.following import whole
from tests.integration.stopping import MODEL, teach
from tests.integration.upstream import Upstream, counted
from tests.serving import free_port

pytestmark = pytest.mark.django_db(transaction=True)


async def answered(conversation: Conversation) -> tuple[Turn, list[Item]]:
    opened = await sync_to_async(conversation.open_turn)([user_message("Go on")])
    turn = opened.turn
    engine.submit(turn.pk, turn.conversation_id)
    await engine.response_of(turn.pk)
    await turn.arefresh_from_db()
    rows = turn.items.filter(origin=Item.Origin.OUTPUT).order_by("position")
    return turn, [row async for row in rows]


async def test_the_text_so_far_remains_and_the_provider_is_disconnected(
    conversation, say, settings, running
):
    settings.MAX_ANSWER_SIZE = 8
    script = say([TextDelta(0, "Éclair"), TextDelta(0, "été"), TextDelta(0, "never")])
    turn, items = await answered(conversation)
    assert (turn.status, turn.incomplete_reason) == ("incomplete", "max_answer_size")
    assert [text_of(row.payload) for row in items] == ["Éclair"]  # no half letters
    assert items[0].payload["status"] == "incomplete"
    assert script.closed == 1
    call = await ModelCall.objects.aget()
    assert (call.status, call.finish_reason) == ("incomplete", "max_answer_size")


async def test_reasoning_and_arguments_count_and_no_cut_call_is_run(
    conversation, say, settings, running
):
    settings.MAX_ANSWER_SIZE = 30
    script = say(
        [
            ReasoningDelta(0, "x" * 10),
            ToolCallDelta(1, "c1", "calculate", '{"a": 1}'),
            CloseDelta(1),
            ToolCallDelta(2, "c2", "calculate", '{"a": "' + "x" * 100),
            FinishDelta("tool_calls"),
        ]
    )
    turn, items = await answered(conversation)
    assert (turn.status, turn.incomplete_reason) == ("incomplete", "max_answer_size")
    assert len(script.requests) == 1
    statuses = [(row.type, row.payload["status"]) for row in items]
    assert statuses == [
        ("reasoning", "completed"),
        ("function_call", "completed"),
        ("function_call", "incomplete"),
    ]
    assert not await turn.tool_calls.aexists()


async def test_all_calls_of_a_turn_count_together(conversation, say, settings, running):
    settings.MAX_ANSWER_SIZE = 30
    reply = [TextDelta(0, "x" * 18), ToolCallDelta(1, "c1", "nothing", "{}")]
    script = say(reply, [TextDelta(0, "y" * 18), UsageDelta(1, 1), FinishDelta("stop")])
    turn, items = await answered(conversation)
    assert (turn.status, turn.incomplete_reason) == ("incomplete", "max_answer_size")
    assert len(script.requests) == 2
    assert text_of(items[-1].payload) == "y" * 10


async def test_an_answer_of_just_that_size_is_whole(
    conversation, say, settings, running
):
    settings.MAX_ANSWER_SIZE = 10
    say([TextDelta(0, "x" * 10), FinishDelta("stop")])
    turn, _ = await answered(conversation)
    assert turn.status == "completed"


async def test_a_provider_is_hung_up_on_over_http(start_server, tmp_path: Path):
    server, port = start_server(MAX_ANSWER_SIZE="300"), free_port()
    teach(server, port)
    program, screen = Program(server), Screen()
    async with Upstream(port) as upstream:
        conversation = await program.conversation()
        wish = "count to 1000 in 60 s"
        turn = await program.create_turn(conversation, wish, model=MODEL)
        async with asyncio.timeout(60):
            await whole(program, turn, screen)
        assert upstream.counted_to(wish) < 1000
    assert screen.events[-1]["type"] == "response.incomplete"
    details = screen.events[-1]["response"]["incomplete_details"]
    assert details == {"reason": "max_answer_size"}
    assert screen.text == counted(1000)[:300]
    late = await whole(program, turn)
    assert late.text == screen.text
    assert (await program.turn(turn))["incomplete_reason"] == "max_answer_size"


async def test_a_large_log_is_not_retained_for_slow_subscribers(
    conversation, say, running, monkeypatch
):
    """A subscriber that stalled continues from the rows, and receives all of it."""
    monkeypatch.setattr(event_log, "UNREAD_RETENTION", 0.0)
    text = "x" * (2 * event_log.LARGE)
    goes_on = asyncio.Event()
    say([TextDelta(0, "One "), goes_on, TextDelta(0, text), FinishDelta("stop")])
    opened = await sync_to_async(conversation.open_turn)([user_message("Go on")])
    turn = opened.turn
    engine.submit(turn.pk, turn.conversation_id)
    batches = engine.subscribe(turn.pk)
    received = list(await anext(batches))
    goes_on.set()
    async with asyncio.timeout(60):
        while engine.require_engine().log.get(turn.pk) is not None:
            await asyncio.sleep(0)  # it reads no more, and the turn comes to its end
        received += [entry async for batch in batches for entry in batch]
        late = [entry async for batch in engine.subscribe(turn.pk) for entry in batch]
    screen = Screen()
    for entry in received:
        screen.show(entry.position, entry.event)
    assert screen.text == f"One {text}"
    assert received[-1].is_last
    assert late[-1].is_last
