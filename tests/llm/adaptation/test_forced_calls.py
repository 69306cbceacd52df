"""A call demanded of hosts that have no word for it, over real bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
import respx

from llm.adaptation.forced_calls import add_demand
from llm.errors import LLMError
from llm.generation import retries
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.wire.deltas import Delta, TextDelta, ToolCallDelta, UsageDelta
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.llm.chat import DONE, chunk, frames
from tests.llm.hosts import Host, calls, refuses, route, route_at, text_stream

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
ONLY_LOOK = {"type": "function", "name": "look"}


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


def ollama() -> Any:
    """It takes no `tool_choice`."""
    return route_at("ollama", allow_private_network=True)


async def stream_with(
    route: Any, call: ProviderCall, choice: Any = "required"
) -> list[list[Delta]]:
    request = Request(
        model="a-model", items=[user_message("Hi")], tools=[LOOK], tool_choice=choice
    )
    stream = retries.stream([route], request, call, policy=Policy(attempts=1))
    async with aclosing(stream) as batches:
        return [batch async for batch in batches]


def words(batches: list[list[Delta]]) -> str:
    return "".join(d.text for batch in batches for d in batch if type(d) is TextDelta)


def names(batches: list[list[Delta]]) -> list[str]:
    deltas = (delta for batch in batches for delta in batch)
    return [d.name for d in deltas if isinstance(d, ToolCallDelta) and d.name]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [("required", "the tool `look`"), (ONLY_LOOK, "the tool `look`")],
)
async def test_the_demand_is_added_to_the_instructions(web, choice: Any, expected: str):
    host, call = Host(web, "a", calls("look", {}, before="Wait. ")), ProviderCall()
    batches = await stream_with(ollama(), call, choice)
    assert f"You must call {expected} now." in str(host.requests[0]["messages"])
    assert (words(batches), names(batches)) == ("Wait. ", ["look"])
    assert call.degraded == ["tool_choice"]
    assert call.earlier == ()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([{"type": "function", "name": "find"}], "the tool `look` or `find`"),
        ([{"type": "web_search"}], "one of your tools"),
        (
            [{"type": "function", "name": f"f{n}"} for n in range(8)],
            "one of your tools",
        ),
    ],
)
def test_few_functions_are_named(more: list[dict[str, Any]], expected: str):
    request = Request(model="a-model", items=[], tools=[LOOK, *more])
    instructions = add_demand(request, "required").instructions
    assert instructions is not None
    assert f"You must call {expected} now." in instructions


async def test_an_answer_without_a_call_is_discarded_and_demanded_again(web):
    host, call = Host(web, "a", text_stream("No."), calls("look", {})), ProviderCall()
    batches = await stream_with(ollama(), call)
    assert (words(batches), names(batches)) == ("", ["look"])
    answer, demand = host.requests[1]["messages"][-2:]
    assert (answer["role"], answer["content"]) == ("assistant", "No.")
    assert demand["content"].startswith("You have called no tool.")
    [first] = call.earlier
    assert "required tool call" in str(first.error)
    usage = [d for batch in batches for d in batch if isinstance(d, UsageDelta)]
    assert usage[-1].input_tokens == 20  # of both
    assert [c.usage.input_tokens for c in (first, call) if c.usage] == [10, 10]


async def test_the_second_answer_is_passed_on_unchanged(web):
    host, call = (
        Host(web, "a", text_stream("No."), text_stream("Still ", "no.")),
        ProviderCall(),
    )
    assert words(await stream_with(ollama(), call)) == "Still no."
    assert (len(host.requests), call.error) == (2, None)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_a_truncated_answer_is_not_requested_again(web, finish: str):
    host, call = Host(web, "a", text_stream("No", finish=finish)), ProviderCall()
    assert words(await stream_with(ollama(), call)) == "No"
    assert len(host.requests) == 1


async def test_an_error_stays_an_error(web):
    Host(web, "a", refuses(401))
    with pytest.raises(LLMError):
        await stream_with(ollama(), ProviderCall())


async def test_prompted_tools_are_demanded_too(web):
    reply = text_stream('{"tool": "look", "input": {}}')
    host, call = Host(web, "a", text_stream("No."), reply), ProviderCall()
    assert names(await stream_with(route(capabilities={"tools": False}), call)) == [
        "look"
    ]
    assert len(host.requests) == 2


async def test_a_model_with_forced_tools_gets_no_prompted_demand(web):
    host, call = Host(web, "a", calls("look", {}, before="Wait. ")), ProviderCall()
    batches = await stream_with(route(), call)
    assert (words(batches), names(batches)) == ("Wait. ", ["look"])
    assert host.requests[0]["tool_choice"] == "required"
    assert "must call" not in str(host.requests)
    assert call.degraded == []


async def test_a_model_that_ignores_the_demand_gets_it_as_a_message(web):
    host, call = (
        Host(web, "a", text_stream("Never", " mind."), calls("look", {})),
        ProviderCall(),
    )
    batches = await stream_with(route(), call)
    assert (words(batches), names(batches)) == ("", ["look"])
    assert "You must call the tool `look` now." in str(host.requests[1]["messages"][-1])
    assert host.requests[1]["tool_choice"] == "required"


async def test_after_published_reasoning_no_request_is_repeated(web):
    thought = chunk({"reasoning_content": "Hm."})
    reply = frames(thought, chunk({"content": "No."}), chunk(finish="stop"), DONE)
    host, call = Host(web, "a", reply), ProviderCall()
    assert words(await stream_with(route(), call)) == "No."
    assert (len(host.requests), call.error) == (1, None)
