"""Limits of a run: of its calls, its time and the time of each tool."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from llm.errors import ProviderTimeout
from tests.tools.agent.upstream import Model, calls, model_saying, outputs, says
from tests.tools.servers import ok, serving
from tools import api
from tools.errors import ToolError

NETWORKS = ["127.0.0.0/8"]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_limits_end_a_run():
    async def forever() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    async def run(*replies: Any, **options: Any) -> tuple[Any, Model]:
        async with model_saying(*replies) as model:
            options = {"tools": [add, forever], "record": False, **options}
            return await api.run(model.route, "?", **options), model

    two = calls(("add", {"a": 1, "b": 2})), calls(("add", {"a": 2, "b": 2}))
    result, _ = await run(*two, max_iterations=2)
    assert result.response["incomplete_details"] == {"reason": "max_steps"}
    assert (result.text, result.metadata["tool_rounds"]) == ("", 2)

    result, model = await run(
        calls(("forever", {}), ("add", {"a": 1, "b": 2})),
        says("Too slow."),
        tool_timeout={"forever": 0.01},
    )
    assert "timed out" in outputs(model.requests[1])[0]
    assert result.text == "Too slow."

    result, _ = await run(calls(("forever", {})), deadline=0.3)
    assert result.response["incomplete_details"] == {"reason": "deadline"}
    result, _ = await run(
        calls(("forever", {})), says("So."), deadline=0.5, non_blocking=["forever"]
    )
    assert result.response["incomplete_details"] == {"reason": "deadline"}
    assert result.items[-1]["content"][0]["text"] == "So."

    twice = calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
    result, model = await run(twice, says("One."), max_tool_calls=1)
    assert outputs(model.requests[1])[0] == "3"
    assert "limit" in outputs(model.requests[1])[1]


@pytest.mark.parametrize("blocking", [True, False])
async def test_the_timeout_of_a_run_bounds_the_request_of_an_http_tool(
    blocking: bool, settings: Any
):
    settings.TOOL_TIMEOUT = 0.001
    settings.BACKGROUND_TOOL_TIMEOUT = 60
    may_answer = asyncio.Event()

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        await may_answer.wait()
        writer.write(ok(b"At last."))

    async def wait(context: api.ToolContext) -> str:
        """Wait until the limit of another tool has passed."""
        asyncio.get_running_loop().call_later(0.05, may_answer.set)
        await may_answer.wait()
        return ""

    options: Any = {"tool_timeout": {"wait": 60}, "record": False}
    if blocking:
        options["tool_timeout"]["orders"] = 60
    replies = calls(("orders", {}), ("wait", {})), says("Wait."), says("Done.")
    async with model_saying(*replies) as model, serving(reply) as shop:
        orders = api.HttpTool(
            name="orders",
            description="Orders.",
            url=shop.url("/orders"),
            networks=NETWORKS,
            blocking=blocking,
        )
        await api.run(model.route, "?", tools=[orders, wait], **options)
    assert "At last." in json.dumps(model.requests[-1]["messages"])


def test_a_run_with_impossible_limits_is_refused():
    for limit in ({"max_iterations": 0}, {"max_tool_calls": -1}, {"deadline": 0}):
        with pytest.raises(ValueError, match=r"at least|above 0"):
            api.stream("m", "?", **limit)  # type: ignore[arg-type]


async def test_an_mcp_server_that_cannot_be_used_is_named():
    async with serving(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n") as broken:
        url = broken.url("/mcp")
        server = api.McpServer(label="wiki", url=url, networks=NETWORKS)
        async with model_saying() as model:
            with pytest.raises(ToolError, match="MCP server 'wiki'"):
                await api.run(model.route, "?", tools=[server], record=False)
    assert model.requests == []


async def test_the_deadline_bounds_what_comes_before_the_model():
    async def hang(question: api.Question) -> None:
        await asyncio.Event().wait()

    async def never_answer(reader: asyncio.StreamReader, _: asyncio.StreamWriter):
        await reader.read()  # until the client leaves

    async with model_saying() as model, serving(never_answer) as deaf:
        server = api.McpServer(
            label="deaf", url=deaf.url("/mcp"), networks=NETWORKS, timeout=60
        )
        for options in ({"tools": [server]}, {"contexts": [hang]}):
            async with asyncio.timeout(10):
                with pytest.raises(ProviderTimeout, match="deadline"):
                    await api.run(
                        model.route, "?", deadline=0.1, record=False, **options
                    )
    assert model.requests == []
