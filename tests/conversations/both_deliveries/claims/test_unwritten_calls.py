"""What a run has paid for and shown is on record, though a write of it has failed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import OperationalError

from conversations import engine
from conversations.engine import turn_store
from conversations.engine.event_log import StaleEpoch
from conversations.models import Conversation, Item, Turn
from llm.models import ModelCall
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta, UsageDelta
from llm.wire.items import text_of, user_message
from tests.conversations.script import HANG

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("running"),
]

CALLING = [
    TextDelta(0, "I shall count."),
    ToolCallDelta(1, "c1", "count", "{}"),
    UsageDelta(7, 5),
    FinishDelta("tool_calls"),
]


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0)


async def ask(conversation: Conversation) -> Turn:
    opened = await sync_to_async(conversation.open_turn)([user_message("Count")])
    engine.submit(opened.turn.pk, conversation.pk)
    return opened.turn


async def end_of(turn: Turn) -> Turn:
    async with asyncio.timeout(30):
        async for _ in engine.subscribe(turn.pk):
            pass
    await turn.arefresh_from_db()
    return turn


class FailingWrite:
    """Stands in for `turn_store.advance`: its first call waits, and then fails."""

    def __init__(self, error: Exception, failing: int = 1) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self._advance, self._error, self._left = turn_store.advance, error, failing

    def __call__(self, *arguments: Any) -> None:
        if not self._left:
            return self._advance(*arguments)
        self._left -= 1
        self.began.set()
        assert self.go_on.wait(30)
        raise self._error


@pytest.mark.parametrize("failing", ["calls", "outcomes"])
async def test_a_write_that_fails_after_stop_is_made_up_for(
    conversation: Conversation, say: Any, counter: Any, monkeypatch: Any, failing: str
):
    say(CALLING)
    runs = counter("safe")
    write = FailingWrite(OperationalError("the connection was lost"))
    if failing == "calls":
        monkeypatch.setattr(turn_store, "advance", write)
    else:
        advance = turn_store.advance

        def pass_calls(claim: Any, progress: Any) -> None:
            (write if progress.outcomes else advance)(claim, progress)

        monkeypatch.setattr(turn_store, "advance", pass_calls)
    turn = await ask(conversation)
    await asyncio.to_thread(write.began.wait, 30)
    await sync_to_async(engine.cancel)(turn)
    run = engine.require_engine().runs[turn.pk]

    async def is_stopped() -> bool:
        return run.state.stop is not None and run.state.in_loop is None

    await until(is_stopped)
    write.go_on.set()
    assert (await end_of(turn)).status == Turn.Status.CANCELLED
    rows = [row async for row in Item.objects.filter(turn=turn).order_by("position")]
    assert [row.position for row in rows] == list(range(len(rows)))
    assert text_of(rows[1].payload) == "I shall count."
    assert rows[2].type == "function_call"
    assert len(runs) == (failing == "outcomes")
    call = await ModelCall.objects.aget()
    assert (call.turn_id, call.output_tokens) == (turn.pk, 5)


async def test_the_calls_of_a_fenced_run_are_on_record(
    conversation: Conversation, say: Any
):
    script = say([TextDelta(0, "One"), HANG])
    turn = await ask(conversation)

    async def hangs() -> bool:
        return bool(script.hanging)

    await until(hangs)
    await Turn.objects.aupdate(epoch=5)
    engine.require_engine().dispatcher.fence(
        engine.require_engine().runs[turn.pk].claim
    )
    await until(ModelCall.objects.aexists)
    call = await ModelCall.objects.aget()
    assert (call.turn_id, call.status) == (turn.pk, ModelCall.Status.CANCELLED)


async def test_a_write_whose_answer_was_lost_counts_once(
    conversation: Conversation, say: Any, monkeypatch: Any
):
    """The connection ends between the commit and the answer to it."""
    say([TextDelta(0, "One."), UsageDelta(7, 5), FinishDelta("stop")])
    finish, record = turn_store.finish, turn_store.record_calls
    recorded = threading.Event()

    def lose_answer(*arguments: Any) -> None:
        finish(*arguments)
        raise OperationalError("the connection was lost")

    def record_calls(*arguments: Any) -> None:
        record(*arguments)
        recorded.set()

    monkeypatch.setattr(turn_store, "finish", lose_answer)
    monkeypatch.setattr(turn_store, "record_calls", record_calls)
    await ask(conversation)
    assert await asyncio.to_thread(recorded.wait, 30)
    assert await ModelCall.objects.acount() == 1


async def test_the_calls_before_a_refused_write_are_on_record(
    conversation: Conversation, say: Any, counter: Any, monkeypatch: Any
):
    """And again once the database can be reached."""
    say(CALLING, [TextDelta(0, "One."), FinishDelta("stop")])
    counter("safe")
    write = FailingWrite(StaleEpoch())
    write.go_on.set()
    monkeypatch.setattr(turn_store, "advance", write)
    record, failures = turn_store.record_calls, [OperationalError("down")]

    def record_later(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        record(*arguments)

    monkeypatch.setattr(turn_store, "record_calls", record_later)
    monkeypatch.setattr("conversations.engine.runs.writes.FIRST_PAUSE", 0.01)
    turn = await ask(conversation)
    await until(ModelCall.objects.aexists)
    call = await ModelCall.objects.aget()
    assert (call.turn_id, call.output_tokens) == (turn.pk, 5)
    assert not failures
