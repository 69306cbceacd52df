"""Spans of tool calls, and what an MCP server is told of the trace."""

from __future__ import annotations

from typing import Any

import pytest

from llm.telemetry import tracing
from tests.llm.telemetry.traced import TracedSpans
from tests.tools.calls import raw_call
from tests.tools.mcp.servers import Running, running
from tests.tools.test_execute import SECRET, broken, echo
from tools.execute import execute
from tools.mcp.client import build_tool, close_all, get_session
from tools.registry import Context, RuntimeTool, get_tool


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> TracedSpans:
    traced = TracedSpans()
    monkeypatch.setattr(tracing, "spans", traced.spans)
    return traced


async def run(name: str, arguments: str, *tools: RuntimeTool) -> None:
    by_name = {tool.name: tool for tool in tools}
    async for _ in execute([raw_call(name, arguments)], by_name, Context()):
        pass


async def test_a_call_is_a_span_without_arguments_and_results(traced: TracedSpans):
    await run("echo", f'{{"text": "{SECRET}"}}', get_tool(echo))
    span = traced.only()
    assert span.name == "execute_tool echo"
    assert span.status.is_ok
    assert SECRET not in span.to_json()


async def test_a_failed_call_says_how_it_ended(traced: TracedSpans):
    await run("broken", f'{{"text": "{SECRET}"}}', get_tool(broken))
    span = traced.only()
    assert span.attributes["error.type"] == "failed"
    assert SECRET not in span.to_json()


async def test_a_name_that_the_model_invents_is_not_shown(traced: TracedSpans):
    await run(SECRET, "{}", get_tool(echo))
    assert traced.only().name == "execute_tool other"
    assert SECRET not in traced.only().to_json()


async def test_an_mcp_server_gets_the_trace_of_the_call(traced: TracedSpans):
    async with running(Running()) as server:
        spec = server.spec()
        session = get_session(spec)
        tools: Any = [build_tool(spec, each) for each in await session.tools()]
        before = len(server.seen.headers)
        await run("ours__add", '{"a": 1, "b": 2}', *tools)
        await close_all()
    span = next(s for s in traced.ended if s.name == "execute_tool ours__add")
    trace = f"{span.context.trace_id:032x}"
    sent = [headers.get("traceparent", "") for headers in server.seen.headers[before:]]
    assert any(header.split("-")[1:2] == [trace] for header in sent)
