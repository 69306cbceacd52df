"""`MAX_ANSWER_SIZE`: a turn takes so much of what a model says, and no more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine import event_log
from conversations.models import Conversation, Item, Turn
from conversations.turns.answer_size import AnswerSize, limit_stream
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
from tests.serving import free_port

from .clients import Program, Screen
from .following import whole
from .stopping import MODEL, teach
from .upstream import Upstream, counted

pytestmark = pytest.mark.django_db(transaction=True)


async def answered(conversation: Conversation) -> tuple[Turn, list[Item]]:
    turn = await sync_to_async(conversation.open_turn)([user_message("Go on")])
    engine.submit(turn.pk, turn.conversation_id)
    await engine.response_of(turn.pk)
    await turn.arefresh_from_db()
    rows = turn.items.filter(origin=Item.Origin.OUTPUT).order_by("position")
    return turn, [row async for row in rows]


async def test_what_was_said_stays_and_the_provider_is_hung_up(
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
    ask = [TextDelta(0, "x" * 18), ToolCallDelta(1, "c1", "nothing", "{}")]
    script = say(ask, [TextDelta(0, "y" * 18), UsageDelta(1, 1), FinishDelta("stop")])
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
        turn = await program.ask(conversation, wish, model=MODEL)
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


async def test_a_large_log_is_not_kept_for_those_who_do_not_read(
    conversation, say, running, monkeypatch
):
    """A subscriber that stalled goes on by the rows, and is told all of it."""
    monkeypatch.setattr(event_log, "UNREAD_RETENTION", 0.0)
    text = "x" * (2 * event_log.LARGE)
    goes_on = asyncio.Event()
    say([TextDelta(0, "One "), goes_on, TextDelta(0, text), FinishDelta("stop")])
    turn = await sync_to_async(conversation.open_turn)([user_message("Go on")])
    engine.submit(turn.pk, turn.conversation_id)
    batches = engine.subscribe(turn.pk)
    told = list(await anext(batches))
    goes_on.set()
    async with asyncio.timeout(60):
        while engine._engine._log.get(turn.pk) is not None:
            await asyncio.sleep(0)  # it reads no more, and the turn comes to its end
        told += [entry async for batch in batches for entry in batch]
        late = [entry async for batch in engine.subscribe(turn.pk) for entry in batch]
    screen = Screen()
    for entry in told:
        screen.show(entry.position, entry.event)
    assert screen.text == f"One {text}"
    assert told[-1].is_last
    assert late[-1].is_last


async def test_a_turn_that_used_all_of_it_before_an_interruption_ends_as_too_large():
    """The next call's first batch may hold nothing that counts."""
    asked = []

    async def stream(request: object, call: object):
        asked.append(request)
        yield [UsageDelta(input_tokens=1)]

    cut = limit_stream(stream, AnswerSize(limit=8, used=8))
    deltas = [delta async for batch in cut(None, None) for delta in batch]
    assert deltas == [FinishDelta("size", "max_answer_size")]
    assert asked == []
