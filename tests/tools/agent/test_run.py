"""Runs of the tool loop without a database, at a real upstream that records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from llm.errors import ProviderDown
from llm.provider import Route
from tests.tools.agent.upstream import calls, model_saying, outputs, says
from tests.tools.mcp.servers import Running, running
from tests.tools.servers import answer, ok, serving
from tools import api
from tools.errors import InvalidTool, ToolError

NETWORKS = ["127.0.0.0/8"]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
    """
    return a + b


THREE_ROUNDS = (
    calls(("add", {"a": 1, "b": 2}), ("calculator", {"expression": "6*7"})),
    calls(("orders", {"id": "7"}), thought="Now the order.", tokens=(30, 8)),
    calls(("ours__add", {"a": 4, "b": 5}), tokens=(50, 9)),
    says("All done.", tokens=(70, 3)),
)


SUM_SCHEMA = {
    "type": "object",
    "properties": {"value": {"type": "integer"}},
    "required": ["value"],
    "additionalProperties": False,
}


@asynccontextmanager
async def three_rounds() -> AsyncIterator[ThreeRounds]:
    """A run with a function, an HTTP tool and an MCP tool, each called in a round."""
    events: list[Any] = []
    async with (
        model_saying(*THREE_ROUNDS) as model,
        serving(ok(b'{"state": "sent"}', "application/json")) as shop,
        running(Running()) as ours,
    ):
        result = await api.run(
            model.route,
            "Do it.",
            tools=[add, "calculator", orders_tool(shop), mcp_server(ours)],
            record=False,
            on_event=events.append,
        )
        yield ThreeRounds(result, model, shop, ours, events)


@dataclass
class ThreeRounds:
    result: Any
    model: Any
    shop: Any
    ours: Any
    events: list[Any]


def orders_tool(shop: Any) -> api.HttpTool:
    return api.HttpTool(
        name="orders",
        description="State of an order.",
        url=shop.url("/orders/{id}"),
        parameters={
            "type": "object",
            "properties": {"id": {"type": "string"}},
            "required": ["id"],
        },
        headers={"Authorization": "Bearer s3cret"},
        networks=NETWORKS,
    )


def mcp_server(ours: Any) -> api.McpServer:
    return api.McpServer(
        label="ours",
        url=ours.spec().url,
        allowed_tools=["add"],
        headers={"X-Team": "blue"},
        networks=NETWORKS,
    )


async def test_three_rounds_use_a_function_an_http_tool_and_an_mcp_tool():
    async with three_rounds() as run:
        assert "authorization: bearer s3cret" in run.shop.requests[0].lower()
        assert run.shop.requests[0].startswith("GET /orders/7 ")
        assert run.ours.seen.headers[-1]["x-team"] == "blue"
    assert run.result.text == "All done."
    sent = run.model.requests
    names = [each["function"]["name"] for each in sent[0]["tools"]]
    assert names == ["add", "calculator", "orders", "ours__add"]
    schema = sent[0]["tools"][0]["function"]
    assert schema["description"].startswith("Add two numbers.")
    assert schema["parameters"]["properties"]["a"]["description"] == "the first"
    assert outputs(sent[1]) == ["3", "42"]
    assert outputs(sent[3])[2:] == ['{"state":"sent"}', "9"]


async def test_the_figures_of_all_rounds_are_added():
    async with three_rounds() as run:
        metadata = run.result.metadata
    assert len(run.model.requests) == metadata["api_calls"] == 4
    assert (metadata["tool_rounds"], metadata["tool_calls"]) == (3, 4)
    assert metadata["input_tokens"] == 10 + 30 + 50 + 70
    assert metadata["output_tokens"] == 5 + 8 + 9 + 3
    assert metadata["total_tokens"] == 185
    assert metadata["cached_input_tokens"] == 5 + 15 + 25 + 35
    assert metadata["reasoning_tokens"] == 2 + 4 + 4 + 1
    assert metadata["cost"] == pytest.approx((160 * 1.0 + 25 * 2.0) / 1_000_000)
    assert metadata["latency_ms"] >= metadata["model_ms"] > 0
    assert 0 <= metadata["ttft_ms"] <= metadata["latency_ms"]


async def test_each_round_is_an_event_of_its_own():
    async with three_rounds() as run:
        pass
    kinds = [event["type"].removeprefix("parley:") for event in run.events]
    kinds = [kind for kind in kinds if kind != "step.degraded"]
    one_round = ["tool_call.started", "tool_call.completed"]
    model_call = ["step.started", "step.finished"]
    assert kinds[:2] == model_call
    assert kinds[6:] == [*model_call, *one_round] * 2 + model_call
    assert run.events[1]["usage"]["input_tokens"] == 10


async def test_the_streaming_twins_yield_the_same_events():
    replies = calls(("add", {"a": 1, "b": 2})), says("Three.")

    async def streamed() -> list[Any]:
        async with model_saying(*replies) as model:
            run = api.stream(model.route, "1+2?", tools=[add], record=False)
            async with aclosing(run) as events:
                found = [event async for event in events]
            assert run.result.text == "Three."
            return found

    def streamed_in_a_thread(route: Route) -> list[Any]:
        with api.stream_sync(route, "1+2?", tools=[add], record=False) as run:
            found = list(run)
        assert (run.result.text, run.error) == ("Three.", None)
        assert api.run_sync(route, "Again", record=False).text == "Again."
        return found

    events = await streamed()
    async with model_saying(*replies, says("Again.")) as model:
        again = await asyncio.to_thread(streamed_in_a_thread, model.route)
    assert [e["type"] for e in events] == [e["type"] for e in again]
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"


async def test_a_late_result_starts_a_new_model_call_at_once():
    may_end = asyncio.Event()
    events: list[Any] = []

    @api.tool(blocking=False)
    async def report(topic: str, context: api.ToolContext) -> str:
        """Write a report."""
        context.progress("half of it")
        await may_end.wait()
        return f"All about {topic}."

    def on_event(event: Any) -> None:
        events.append(event)
        if event["type"] == "parley:tool_call.progress":
            may_end.set()

    replies = (
        calls(("report", {"topic": "tea"}), ("add", {"a": 1, "b": 1}), thought="Hm."),
        says("Meanwhile: 2."),
        says("The report is here."),
    )
    async with model_saying(*replies) as model:
        result = await api.run(
            model.route, "?", tools=[report, add], record=False, on_event=on_event
        )
    assert len(model.requests) == 3
    last = model.requests[2]["messages"]
    assert last[-2] == {"role": "assistant", "content": "Meanwhile: 2."}
    assert "All about tea." in json.dumps(last[-1])
    assert result.text == "The report is here."
    assert result.metadata["response_status"] == "completed"
    late = [event for event in events if event.get("name") == "report"]
    assert [event["type"] for event in late] == [
        "parley:tool_call.started",
        "parley:result.arrived",
        "parley:background_call.completed",
    ]
    (item,) = (item for item in result.items if item["id"] == late[-1]["item_id"])
    assert item["parley:call_id"] == late[-1]["call_id"]
    assert result.metadata["tool_rounds"] == 1


async def test_a_late_result_reaches_the_model_of_a_synchronous_stream():
    def report(topic: str) -> str:
        """Write a report."""
        return f"All about {topic}."

    replies = (
        calls(("report", {"topic": "tea"}), ("report", {"topic": "rye"})),
        says("Meanwhile."),
        says("Done."),
    )

    def read(route: Route) -> tuple[list[Any], Any]:
        with api.stream_sync(
            route, "?", tools=[report], non_blocking=["report"], record=False
        ) as run:
            return [event["type"] for event in run], run.result

    # A result may arrive before the model has spoken, or between its two answers.
    async with model_saying(*replies, says("Done.")) as model:
        events, result = await asyncio.to_thread(read, model.route)
        sent = model.requests
    assert events.count("parley:result.arrived") == 2
    assert events.count("parley:background_call.completed") == 2
    assert events[-1] == "response.completed"
    said = json.dumps(sent[-1]["messages"])
    assert "All about tea." in said
    assert "All about rye." in said
    assert result.metadata["api_calls"] == len(sent)
    assert result.metadata["tool_calls"] == 2


async def test_the_figures_of_an_answer_that_was_corrected_are_added_too():
    replies = (
        calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}), tokens=(20, 6)),
        says("three", tokens=(40, 2)),
        says('{"value": 3}', tokens=(60, 4)),
    )
    text = {"format": {"type": "json_schema", "name": "sum", "schema": SUM_SCHEMA}}
    async with model_saying(*replies) as model:
        result = await api.run(
            model.route, "1+2?", tools=[add], text=text, record=False
        )
    assert result.parsed == {"value": 3}
    metadata = result.metadata
    assert metadata["api_calls"] == len(model.requests) == 3
    assert (metadata["tool_rounds"], metadata["tool_calls"]) == (1, 2)
    assert metadata["input_tokens"] == 20 + 40 + 60
    assert metadata["output_tokens"] == 6 + 2 + 4
    assert metadata["cost"] == pytest.approx((120 * 1.0 + 12 * 2.0) / 1_000_000)


async def test_a_late_error_is_an_event_and_reaches_the_model():
    events: list[Any] = []

    async def broken() -> str:
        """Break."""
        raise ToolError("the disk is full.")

    replies = calls(("broken", {})), says("Waiting."), says("It failed.")
    async with model_saying(*replies) as model:
        options: Any = {"non_blocking": ["broken"], "on_event": events.append}
        result = await api.run(
            model.route, "?", tools=[broken], record=False, **options
        )
    (failed,) = (e for e in events if e["type"] == "parley:background_call.failed")
    assert (failed["state"], failed["error"]) == ("failed", "the disk is full.")
    assert "the disk is full." in json.dumps(model.requests[2]["messages"][-1])
    assert result.text == "It failed."


async def test_external_work_is_polled_until_it_is_done():
    polls: list[str] = []

    async def poll(context: api.ToolContext, token: str) -> Any:
        polls.append(token)
        return "printed" if len(polls) == 2 else api.Accepted(token, 0.001)

    @api.tool(poll=poll)
    async def print_it() -> Any:
        """Print."""
        return api.Accepted("job-1", poll_after=0.001)

    replies = calls(("print_it", {})), says("Sent."), says("Printed.")
    async with model_saying(*replies) as model:
        result = await api.run(model.route, "?", tools=[print_it], record=False)
    assert polls == ["job-1", "job-1"]
    assert result.text == "Printed."


async def test_calls_run_side_by_side_unless_they_may_not():
    order: list[str] = []

    async def first() -> None:
        """First."""
        await asyncio.sleep(0)
        order.append("first")

    async def second() -> None:
        """Second."""
        order.append("second")

    for parallel, expected in (
        (None, ["second", "first"]),
        (False, ["first", "second"]),
    ):
        order.clear()
        async with model_saying(
            calls(("first", {}), ("second", {})), says("")
        ) as model:
            await api.run(
                model.route,
                "?",
                tools=[first, second],
                parallel_tool_calls=parallel,
                record=False,
            )
        assert order == expected


async def test_the_callers_own_functions_end_the_run_with_open_calls():
    own = {"type": "function", "name": "ask", "parameters": {"type": "object"}}
    replies = (
        calls(("add", {"a": 1, "b": 2}), ("ask", {})),
        says("Thanks."),
    )
    async with model_saying(*replies) as model:
        result = await api.run(model.route, "?", tools=[add, own], record=False)
        (open_call,) = result.calls
        assert open_call["name"] == "ask"
        output = {
            "type": "function_call_output",
            "call_id": open_call["call_id"],
            "output": "blue",
        }
        items = [*api.as_items("?"), *result.items, output]
        again = await api.run(model.route, items, tools=[add, own], record=False)
    assert again.text == "Thanks."
    assert sorted(outputs(model.requests[1])) == ["3", "blue"]


async def test_a_failure_keeps_what_was_done_and_is_raised_by_run():
    replies = calls(("add", {"a": 1, "b": 2})), answer("503 Down")
    policy = api.Policy(attempts=1)
    async with model_saying(*replies, *replies) as model:
        options: Any = {"tools": [add], "record": False, "policy": policy}
        run = api.stream(model.route, "?", **options)
        events = [event async for event in run]
        with pytest.raises(ProviderDown):
            await api.run(model.route, "?", **options)
    assert isinstance(run.error, ProviderDown)
    assert events[-1]["type"] == "response.failed"
    assert [i["type"] for i in run.result.items][-1] == "function_call_output"
    assert run.result.metadata["api_calls"] == 2
    (finished,) = (e for e in events if e.get("error") == ProviderDown.code)
    assert finished["type"] == "parley:step.finished"


class Sum(BaseModel):
    total: int


async def test_the_thin_names_return_text_json_and_results():
    def replies(text: str) -> list[bytes]:
        return [calls(("add", {"a": 1, "b": 2})), says(text)]

    parts = [*replies("Three."), *replies("Three."), *replies('{"total": 3}')]
    async with model_saying(*parts) as model:
        options: Any = {"record": False}
        text = await api.generate_text(model.route, "?", tools=[add], **options)
        result = await api.generate_with_tools(model.route, "?", [add], **options)
        value = await api.generate_json(model.route, "?", Sum, tools=[add], **options)
    assert (text, result.text, value) == ("Three.", "Three.", Sum(total=3))
    assert result.metadata["tool_rounds"] == 1


async def test_a_call_that_needs_approval_runs_only_when_approved():
    ran: list[int] = []

    @api.tool(approval=api.Approval(policy="always"))
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    async def run(approve: Callable[[Any], Any] | None) -> str:
        async with model_saying(calls(("pay", {"amount": 5})), says("")) as model:
            await api.run(model.route, "?", tools=[pay], approve=approve, record=False)
            return outputs(model.requests[1])[0]

    assert "E_TOOL_NEEDS_APPROVAL" in await run(None)
    assert "declined" in await run(lambda call: call["arguments"]["amount"] < 5)
    assert ran == []
    assert await run(lambda call: call["arguments"] == {"amount": 5}) == "paid"
    assert ran == [5]


@pytest.mark.parametrize("blocking", [True, False])
async def test_the_wait_for_an_approval_is_not_the_tools(blocking: bool):
    asked: list[Any] = []
    may_pay = asyncio.Event()

    async def poll(context: api.ToolContext, token: str) -> str:
        return "paid"

    @api.tool(
        approval=api.Approval(policy="always"),
        timeout=0.5,
        poll=None if blocking else poll,
        blocking=blocking,
    )
    async def pay() -> Any:
        """Pay."""
        return "paid" if blocking else api.Accepted("job", poll_after=0.001)

    async def approve(call: Any) -> bool:
        asked.append(call)
        await may_pay.wait()
        return True

    @api.tool(timeout=0.6)
    async def forever() -> None:
        """Take longer than `pay` may take."""
        await asyncio.Event().wait()

    def on_event(event: Any) -> None:
        if event["type"] == "parley:tool_call.timed_out":
            may_pay.set()

    options: Any = {"approve": approve, "on_event": on_event, "record": False}
    replies = calls(("pay", {}), ("forever", {})), says("Wait."), says("Done.")
    async with model_saying(*replies) as model:
        await api.run(model.route, "?", tools=[pay, forever], **options)
    assert "paid" in json.dumps(model.requests[-1]["messages"])
    assert len(asked) == 1


NAMELESS = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("tools", "problem"),
    [
        ([add, add], "two tools are named 'add'"),
        (["nothing_like_it"], "no tool named 'nothing_like_it'"),
        ([NAMELESS], "nests it"),
        ([{"name": "f"}], "no 'type'"),
        ("calculator", "is a list"),
        ([lambda x: x], "no type for its parameter 'x'"),
        ([api.McpServer(label="a b", url="http://a")], "the label 'a b'"),
        (
            [api.HttpTool(name="h", description="", url="ftp://a")],
            "Write a URL such as",
        ),
    ],
)
@pytest.mark.django_db
async def test_tools_that_cannot_be_used_are_refused_before_the_model_is_called(
    tools: Any, problem: str
):
    async with model_saying() as model:
        with pytest.raises(InvalidTool, match=problem):
            await api.run(model.route, "?", tools=tools, record=False)
        assert model.requests == []
