"""Spans of tool calls, and what an MCP server is told of the trace."""

from __future__ import annotations

from typing import Any

import pytest

from llm.telemetry import tracing
from tests.llm.telemetry.traced import TracedSpans
from tests.tools.calls import raw_call
from tests.tools.http.test_http_tool import http_tool
from tests.tools.mcp.servers import Running, running
from tests.tools.servers import Server, ok, serving
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


def sent_traces(server: Server) -> list[str]:
    lines = [head.lower().splitlines() for head in server.requests]
    return [
        line.partition(":")[2].strip().split("-")[1]
        for head in lines
        for line in head
        if line.startswith("traceparent:")
    ]


async def test_the_server_of_an_http_tool_gets_the_trace_of_the_call(
    traced: TracedSpans,
):
    async with serving(ok()) as server:
        tool = http_tool(server.url("/things/{id}"))
        await run("things", '{"id": "7"}', tool)
    assert sent_traces(server) == [f"{traced.only().context.trace_id:032x}"]


@pytest.mark.parametrize("is_home", [True, False])
async def test_a_poll_continues_the_trace_at_the_tools_own_server(
    is_home: bool, traced: TracedSpans
):
    turn = traced.spans.start_turn("", {}, conversation_id="c", kind="demo")
    async with serving(ok()) as server:
        host = "127.0.0.1" if is_home else "127.0.0.2"
        home = server.url("/things/{id}", host=host)
        tool = http_tool(home, async_answers=True)
        await tool.poll(Context(), server.url("/jobs/1"))
    trace = f"{turn.get_span_context().trace_id:032x}"
    assert sent_traces(server) == ([trace] if is_home else [])


async def test_without_traces_an_http_tool_sends_no_header_of_them():
    async with serving(ok()) as server:
        await run("things", '{"id": "7"}', http_tool(server.url("/things/{id}")))
    assert sent_traces(server) == []
