"""A tool is called no more often than staff allow a user, at every entry point."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from httpx import ASGITransport, AsyncClient

from conversations.engine import background_store
from conversations.engine.background_store import CallWork
from conversations.models import Conversation, Item, ToolCall
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from tests.conversations.both_deliveries.test_engine import answer
from tests.conversations.scene import a_user, bearer
from tools.models import Tool
from tools.runtime_tool import Accepted

pytestmark = pytest.mark.django_db(transaction=True)
DONE = [TextDelta(0, "Done."), FinishDelta("stop")]


def calls(count: int) -> list[Any]:
    """A step of the model that calls the calculator so many times at once."""
    made = [
        ToolCallDelta(number, f"c{number}", "calculator", '{"expression": "1 + 1"}')
        for number in range(count)
    ]
    return [*made, FinishDelta("tool_calls")]


@pytest.fixture
def limited(db: None) -> None:
    Tool.objects.sync()
    fields: dict[str, Any] = {"enabled": True, "approval": "never"}
    Tool.objects.filter(name="calculator").update(calls_per_minute=2, **fields)


async def states(conversation: Conversation) -> list[str]:
    rows = ToolCall.objects.filter(turn__conversation=conversation)
    return sorted([row.state async for row in rows])


async def test_calls_beyond_the_limit_are_refused_and_the_turn_goes_on(
    conversation, say, running, limited
):
    script = say(calls(3), DONE, calls(1), DONE, calls(2), DONE)
    turn, _entries = await answer(conversation)
    assert turn.status == "completed"
    assert await states(conversation) == ["completed", "completed", "failed"]
    outputs = [
        item["output"]
        for item in script.requests[1].items
        if item["type"] == "function_call_output"
    ]
    (refusal,) = [text for text in outputs if "2 times a minute" in str(text)]
    assert "Try again in" in str(refusal)
    # The bucket is the user's, not the turn's.
    await answer(conversation)
    assert (await states(conversation)).count("failed") == 2
    # And another user has one of their own.
    bob = await sync_to_async(a_user)("bob")
    other = await Conversation.objects.acreate(owner=bob)
    await answer(other)
    assert await states(other) == ["completed", "completed"]


async def test_calls_in_the_background_count_as_well(
    conversation, say, running, limited
):
    await Tool.objects.filter(name="calculator").aupdate(blocking=False)
    say(calls(3), *[DONE] * 6)
    await answer(conversation)
    while not {"completed", "failed"}.issuperset(await states(conversation)):
        await asyncio.sleep(0)
    assert await states(conversation) == ["completed", "completed", "failed"]


async def test_a_background_call_runs_under_the_name_of_its_tool(
    conversation, say, running, limited
):
    """Which the model wrote with a prefix."""
    await Tool.objects.filter(name="calculator").aupdate(blocking=False)
    arguments = '{"expression": "1 + 1"}'
    call = ToolCallDelta(0, "c0", "functions.calculator", arguments)
    say([call, FinishDelta("tool_calls")], DONE, DONE)
    await answer(conversation)
    while "executing" in await states(conversation):
        await asyncio.sleep(0)
    row = await ToolCall.objects.aget()
    assert (row.name, row.state, row.output) == ("calculator", "completed", "2")


async def test_a_poll_for_a_result_does_not_count(conversation, limited):
    turn = (await sync_to_async(conversation.open_turn)([user_message("2 + 2")])).turn
    payload = {
        "type": "function_call",
        "call_id": "c0",
        "name": "calculator",
        "arguments": '{"expression": "2 + 2"}',
    }
    kind = {"origin": Item.Origin.OUTPUT, "type": "function_call"}
    await Item.objects.acreate(turn=turn, position=1, payload=payload, **kind)
    row = await turn.tool_calls.acreate(
        call_id="c0", name="calculator", state="executing", blocking=False
    )

    async def load() -> CallWork:
        claim = await sync_to_async(background_store.claim)(row.pk)
        assert claim
        return await sync_to_async(background_store.load)(claim)

    assert (await load()).tools["calculator"].permit is not None
    rows = ToolCall.objects.filter(pk=row.pk)
    await sync_to_async(background_store.accept)(rows, Accepted("job", 0))
    assert (await load()).tools["calculator"].permit is None


async def test_the_gateway_counts_as_well(conversation, say, running, limited):
    from project.server.application import application

    script = say(calls(3), DONE)
    headers = await sync_to_async(bearer)(conversation.owner)
    body = {
        "model": "demo",
        "input": "Hi",
        "store": False,
        "tools": [{"type": "parley:tools", "names": ["calculator"]}],
    }
    async with AsyncClient(
        transport=ASGITransport(application), base_url="http://localhost"
    ) as http:
        got = await http.post("/v1/responses", json=body, headers=headers)
    assert got.status_code == 200, got.text
    outputs = [
        str(item["output"])
        for item in script.requests[1].items
        if item["type"] == "function_call_output"
    ]
    assert len(outputs) == 3
    assert sum("2 times a minute" in text for text in outputs) == 1


async def test_a_tool_without_a_limit_is_called_as_often_as_the_model_wants(
    conversation, say, running, limited
):
    await Tool.objects.filter(name="calculator").aupdate(calls_per_minute=None)
    say(calls(5), DONE)
    await answer(conversation)
    assert await states(conversation) == ["completed"] * 5
