"""A call demanded of hosts that have no word for it, over real bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
import respx

from llm import policy
from llm.adaptation.forced_calls import add_demand
from llm.errors import LLMError
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.wire.deltas import Delta, TextDelta, ToolCallDelta, UsageDelta
from llm.wire.items import user_message
from llm.wire.request import Request

from .chat import DONE, chunk, frames
from .hosts import Host, calls, refuses, route, route_at, says

LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
ONLY_LOOK = {"type": "function", "name": "look"}


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="httpx", assert_all_called=False) as mock:
        yield mock


def ollama() -> Any:
    """It takes no `tool_choice`."""
    return route_at("ollama", allow_private_network=True)


async def ask(
    asked: Any, call: ProviderCall, choice: Any = "required"
) -> list[list[Delta]]:
    request = Request(
        model="a-model", items=[user_message("Hi")], tools=[LOOK], tool_choice=choice
    )
    stream = policy.stream([asked], request, call, policy=Policy(attempts=1))
    async with aclosing(stream) as batches:
        return [batch async for batch in batches]


def words(batches: list[list[Delta]]) -> str:
    return "".join(d.text for batch in batches for d in batch if type(d) is TextDelta)


def names(batches: list[list[Delta]]) -> list[str]:
    told = (delta for batch in batches for delta in batch)
    return [d.name for d in told if isinstance(d, ToolCallDelta) and d.name]


@pytest.mark.parametrize(
    ("choice", "told"),
    [("required", "the tool `look`"), (ONLY_LOOK, "the tool `look`")],
)
async def test_the_demand_is_told_in_words(web, choice: Any, told: str):
    host, call = Host(web, "a", calls("look", {}, before="Wait. ")), ProviderCall()
    batches = await ask(ollama(), call, choice)
    assert f"You must call {told} now." in str(host.asked[0]["messages"])
    assert (words(batches), names(batches)) == ("Wait. ", ["look"])
    assert call.degraded == ["tool_choice"]
    assert call.earlier == ()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([{"type": "function", "name": "find"}], "the tool `look` or `find`"),
        ([{"type": "web_search"}], "one of your tools"),
        (
            [{"type": "function", "name": f"f{n}"} for n in range(8)],
            "one of your tools",
        ),
    ],
)
def test_few_functions_are_named(more: list[dict[str, Any]], told: str):
    request = Request(model="a-model", items=[], tools=[LOOK, *more])
    said = add_demand(request, "required").instructions
    assert said is not None
    assert f"You must call {told} now." in said


async def test_an_answer_without_a_call_is_not_heard_and_demanded_again(web):
    host, call = Host(web, "a", says("No."), calls("look", {})), ProviderCall()
    batches = await ask(ollama(), call)
    assert (words(batches), names(batches)) == ("", ["look"])
    said, demand = host.asked[1]["messages"][-2:]
    assert (said["role"], said["content"]) == ("assistant", "No.")
    assert demand["content"].startswith("You have called no tool.")
    [first] = call.earlier
    assert "without the call" in str(first.error)
    usage = [d for batch in batches for d in batch if isinstance(d, UsageDelta)]
    assert usage[-1].input_tokens == 20  # of both
    assert [c.usage.input_tokens for c in (first, call) if c.usage] == [10, 10]


async def test_the_second_answer_is_told_as_it_is(web):
    host, call = Host(web, "a", says("No."), says("Still ", "no.")), ProviderCall()
    assert words(await ask(ollama(), call)) == "Still no."
    assert (len(host.asked), call.error) == (2, None)


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_an_answer_that_was_cut_short_is_not_asked_for_again(web, finish: str):
    host, call = Host(web, "a", says("No", finish=finish)), ProviderCall()
    assert words(await ask(ollama(), call)) == "No"
    assert len(host.asked) == 1


async def test_an_error_stays_an_error(web):
    Host(web, "a", refuses(401))
    with pytest.raises(LLMError):
        await ask(ollama(), ProviderCall())


async def test_tools_offered_in_words_are_demanded_too(web):
    said = says('{"tool": "look", "input": {}}')
    host, call = Host(web, "a", says("No."), said), ProviderCall()
    assert names(await ask(route(capabilities={"tools": False}), call)) == ["look"]
    assert len(host.asked) == 2


async def test_who_can_be_forced_is_not_told_so(web):
    host, call = Host(web, "a", calls("look", {}, before="Wait. ")), ProviderCall()
    batches = await ask(route(), call)
    assert (words(batches), names(batches)) == ("Wait. ", ["look"])
    assert host.asked[0]["tool_choice"] == "required"
    assert "must call" not in str(host.asked)
    assert call.degraded == []


async def test_who_does_not_care_is_asked_again_with_words(web):
    host, call = (
        Host(web, "a", says("Never", " mind."), calls("look", {})),
        ProviderCall(),
    )
    batches = await ask(route(), call)
    assert (words(batches), names(batches)) == ("", ["look"])
    assert "You must call the tool `look` now." in str(host.asked[1]["messages"][-1])
    assert host.asked[1]["tool_choice"] == "required"


async def test_after_a_thought_was_told_nothing_is_asked_again(web):
    thought = chunk({"reasoning_content": "Hm."})
    said = frames(thought, chunk({"content": "No."}), chunk(finish="stop"), DONE)
    host, call = Host(web, "a", said), ProviderCall()
    assert words(await ask(route(), call)) == "No."
    assert (len(host.asked), call.error) == (1, None)
