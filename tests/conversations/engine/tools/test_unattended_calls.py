"""A program waits for its response: calls that need approval fail, also those for whose
results the model would not wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine import background_store
from conversations.models import Conversation, Item, Question, ToolCall, Turn
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from tools.execute import CallOutcome, execute
from tools.registry import Approval
from tools.runtime_tool import Context

pytestmark = pytest.mark.django_db(transaction=True)

DONE = [TextDelta(0, "Done."), FinishDelta("stop")]
ALWAYS = Approval(policy="always")
LARGE = Approval(
    policy="rule",
    rule={"properties": {"euros": {"minimum": 100}}, "required": ["euros"]},
)


class Bank:
    def __init__(self) -> None:
        self.paid: list[dict[str, Any]] = []

    async def pay(self, context: Context, arguments: dict[str, Any]) -> str:
        self.paid.append(arguments)
        return "paid"


def calling(arguments: str) -> list[Any]:
    return [ToolCallDelta(0, "c1", "dig", arguments), FinishDelta("tool_calls")]


def open_turn(conversation: Conversation, **echo: Any) -> Turn:
    """As the gateway opens a stored response."""
    options = {"gateway": {"echo": {"store": True, **echo}}}
    return conversation.open_turn([user_message("Pay.")], options=options).turn


async def answer(conversation: Conversation, **echo: Any) -> Turn:
    turn = await sync_to_async(open_turn)(conversation, **echo)
    engine.submit(turn.pk, conversation.pk)
    async for _ in engine.subscribe(turn.pk):
        pass
    await turn.arefresh_from_db()
    return turn


async def output_of(turn: Turn) -> str:
    item = await Item.objects.aget(turn=turn, type="function_call_output")
    return str(item.payload["output"])


@pytest.mark.parametrize("approval", [ALWAYS, LARGE], ids=["always", "rule"])
async def test_a_call_that_needs_approval_does_not_run_in_the_background(
    conversation, say, offer, running, approval
):
    bank = Bank()
    offer(bank.pay, approval=approval)
    say(calling('{"euros": 500}'), DONE)
    turn = await answer(conversation)
    assert turn.status == "completed"
    assert "E_TOOL_NEEDS_APPROVAL" in await output_of(turn)
    call = await ToolCall.objects.aget(turn=turn)
    assert (call.state, call.blocking) == ("failed", True)
    assert bank.paid == []


async def test_a_call_that_the_rule_leaves_out_runs_in_the_background(
    conversation, say, offer, running
):
    bank = Bank()
    offer(bank.pay, approval=LARGE)
    say(calling('{"euros": 5}'), DONE, DONE)
    turn = await answer(conversation)
    assert (await output_of(turn)).startswith("Accepted")
    while not await ToolCall.objects.filter(turn=turn, state="completed").aexists():
        await asyncio.sleep(0)
    assert bank.paid == [{"euros": 5}]


async def test_a_background_response_waits_for_the_approval(
    conversation, say, offer, running
):
    bank = Bank()
    offer(bank.pay, approval=ALWAYS)
    say(calling('{"euros": 500}'))
    turn = await sync_to_async(open_turn)(conversation, background=True)
    engine.submit(turn.pk, conversation.pk)
    while not await Question.objects.filter(tool_call__turn=turn).aexists():
        await asyncio.sleep(0)
    assert bank.paid == []


async def test_a_row_that_is_in_the_background_is_no_approval(
    conversation, offer, running
):
    """Staff demand approval since it was written."""
    bank = Bank()
    offer(bank.pay, approval=ALWAYS)

    def load() -> background_store.CallWork:
        turn = open_turn(conversation)
        call = {"type": "function_call", "call_id": "c1", "name": "dig"}
        payload = {**call, "arguments": '{"euros": 500}'}
        turn.items.create(
            position=9, origin="output", type=call["type"], payload=payload
        )
        row = ToolCall.objects.create(
            turn=turn, call_id="c1", name="dig", state="executing", blocking=False
        )
        claim = background_store.claim(row.pk)
        assert claim
        return background_store.load(claim)

    work = await sync_to_async(load)()
    [outcome] = [event async for event in execute([work.call], work.tools, Context())]
    assert isinstance(outcome, CallOutcome)
    assert outcome.state == "failed"
    assert "E_TOOL_NEEDS_APPROVAL" in str(outcome.output)
    assert bank.paid == []
