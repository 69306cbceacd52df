from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from llm.errors import ProviderDown
from llm.wire.deltas import (
    CloseDelta,
    FinishDelta,
    ItemDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.request import Request
from llm.wire.response_builder import TERMINAL, ResponseBuilder
from tests.conversations.script import HANG, Script
from tests.llm import chat, claude
from tests.tools.calls import raw_call
from tools.execute import MAX_PARALLEL
from tools.execution.output import MAX_TEXT
from tools.loop import answer_size
from tools.loop.answer_size import AnswerSize
from tools.loop.loop import LARGE_ANSWER, respond
from tools.loop.task import Task
from tools.loop.tool_calls import ToolCalls
from tools.registry import Context, RuntimeTool, get_tool, tool

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


async def weather(context: Context, arguments: dict) -> str:
    await asyncio.sleep(0)
    context.progress("looking")
    return f"sunny in {arguments['city']}"


TOOLS = {
    "weather": RuntimeTool(
        name="weather", description="", parameters=SCHEMA, call=weather
    )
}
CALLS = [
    TextDelta("t", "Let me see."),
    ToolCallDelta(0, "c1", "weather", '{"city": "Riga"}'),
    ToolCallDelta(1, "c2", "weather", '{"city"'),
    UsageDelta(10, 5),
    FinishDelta("tool_calls"),
]
ANSWER = [TextDelta(0, "Sunny."), UsageDelta(20, 2), FinishDelta("stop")]


def chat_calls(*arguments, reason="tool_calls"):
    """The deltas of a Chat Completions host that ends its answer; one call each."""
    deltas = [
        chat.chunk(chat.call(n, f"c{n}", "weather", text))
        for n, text in enumerate(arguments)
    ]
    return chat.decoded(chat.frames(*deltas, chat.chunk({}, reason), chat.DONE))


def messages_calls(*arguments, reason="tool_use"):
    """The same of a Messages host."""
    events = [claude.START]
    for n, text in enumerate(arguments):
        block = {"type": "tool_use", "id": f"c{n}", "name": "weather", "input": {}}
        delta = claude.piece(n, "input_json_delta", partial_json=text)
        events += [claude.begun(n, block), delta, claude.stopped(n)]
    reason = {"length": "max_tokens"}.get(reason, reason)
    return claude.decoded_deltas(
        claude.frames(*events, claude.ended(reason), claude.STOP)
    )


class Rows:
    """A record that takes its time, as a database does."""

    def __init__(self):
        self.log = []
        self.results = []

    has_new_results = False

    async def save_calls(self, calls, *, background):
        await asyncio.sleep(0)
        self.log.append(("called", [call["call_id"] for call in calls]))

    async def save_outcomes(self, outcomes, *, last):
        await asyncio.sleep(0)
        self.log.append(("answered", [o.call_id for o in outcomes], last))

    async def fetch_results(self):
        await asyncio.sleep(0)
        self.has_new_results = False
        return self.results

    async def suspend(self, calls):
        await asyncio.sleep(0)
        self.log.append(("waits", [call["call_id"] for call in calls]))
        return [{"id": f"ask_{call['call_id']}"} for call in calls]

    def begin_model_call(self, call):
        pass

    def record_model_call(self, call):
        self.log.append(("asked",))


def start(script, publish=None, **changes):
    task = Task(
        **{
            "prepare": lambda items: Request(model="m", items=items),
            "stream": script,
            "tools": TOOLS,
            **changes,
        }
    )
    builder, rows = ResponseBuilder(id="resp_1", model="m"), Rows()
    builder.start()
    batches = respond(
        task,
        builder=builder,
        record=rows,
        stop_reason=lambda: "cancelled",
        publish=publish,
    )
    return batches, builder, rows


async def run(script, **changes):
    batches, builder, rows = start(script, **changes)
    events = [event async for batch in batches for event in batch]
    return events, builder, rows


def kinds(builder):
    return [item["type"] for item in builder.output]


async def test_published_events_reach_the_stream_once_and_in_order():
    events, _, _ = await run(Script(CALLS, ANSWER))
    published = []
    batches, _, _ = start(Script(CALLS, ANSWER), publish=published.append)
    at_once = []
    async for batch in batches:
        at_once += [
            event for published_batch in published for event in published_batch
        ] + batch
        published.clear()
    assert [kind(e) for e in at_once] == [kind(e) for e in events]
    numbers = [event["sequence_number"] for event in at_once]
    assert numbers == sorted(numbers)


def kind(event):
    return event["type"], event.get("delta"), event.get("sequence_number")


@pytest.mark.parametrize(("size", "waits"), [(LARGE_ANSWER, 0), (LARGE_ANSWER + 1, 1)])
async def test_a_large_answer_is_closed_when_it_may_be(size, waits):
    """Until then it is neither stored whole nor published as done."""
    events, found = [], []

    async def closing():
        found.append([event["type"] for event in events])

    script = Script([TextDelta(0, "x" * size), FinishDelta("stop")])
    batches, builder, _ = start(script, publish=events.extend, wait_to_close=closing)
    async for batch in batches:
        events += batch
    assert len(found) == waits
    assert all("response.output_text.done" not in types for types in found)
    assert events[-1]["type"] == "response.completed"
    assert len(builder.output[0]["content"][0]["text"]) == size


async def test_a_large_answer_grows_when_there_is_room():
    lengths, published = [], []

    async def wait(length):
        lengths.append((length, len(published)))

    script = Script([TextDelta(0, "x" * LARGE_ANSWER)] * 3 + [FinishDelta("stop")])
    batches, _, _ = start(script, publish=published.append, wait_for_room=wait)
    async for _ in batches:
        pass
    assert list(dict.fromkeys(lengths)) == [
        (2 * LARGE_ANSWER, 2),
        (3 * LARGE_ANSWER, 3),
    ]


async def test_calls_are_run_and_answered_in_their_order():
    script = Script(CALLS, ANSWER)
    events, builder, rows = await run(script)
    assert kinds(builder) == [
        "message",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert builder.output[3]["output"] == "sunny in Riga"
    assert builder.output[4]["output"].startswith("Error:")
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["usage"]["total_tokens"] == 37
    assert len(script.requests[1].items) == 5
    call_types = [e["type"] for e in events if e["type"].startswith("parley:tool_call")]
    assert sorted(call_types) == [
        "parley:tool_call.completed",
        "parley:tool_call.failed",
        "parley:tool_call.progress",
        "parley:tool_call.started",
        "parley:tool_call.started",
    ]
    assert rows.log[:2] == [("asked",), ("called", ["c1", "c2"])]
    assert rows.log[-2][0::2] == ("answered", True)


@pytest.mark.parametrize("arguments", ['{"city"', "{'city': 'Riga'}", "{}{}"])
@pytest.mark.parametrize("wire", [chat_calls, messages_calls])
async def test_a_call_that_cannot_be_read_is_answered_with_an_error(wire, arguments):
    stream = wire(arguments, '{"city": "Riga"}')
    events, builder, _ = await run(Script(stream, ANSWER))
    assert kinds(builder) == [
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ]
    assert builder.output[2]["output"].startswith("Error: the arguments are not valid")
    assert builder.output[3]["output"] == "sunny in Riga"
    assert events[-1]["type"] == "response.completed"


@pytest.mark.parametrize("wire", [chat_calls, messages_calls])
async def test_a_model_that_only_makes_calls_that_cannot_be_read_is_stopped(wire):
    script = Script(*(wire(f'{{"city": {n}') for n in range(9)))
    events, *_ = await run(script, max_steps=2)
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_steps"}
    assert len(script.requests) == 2


@pytest.mark.parametrize("wire", [chat_calls, messages_calls])
async def test_a_call_that_the_length_cuts_is_not_answered(wire):
    script = Script(wire('{"city"', reason="length"), ANSWER)
    events, builder, rows = await run(script)
    assert kinds(builder) == ["function_call"]
    assert builder.output[0]["status"] == "incomplete"
    assert rows.log == [("asked",)]
    assert events[-1]["type"] == "response.incomplete"


@pytest.mark.parametrize("wire", [chat_calls, messages_calls])
async def test_the_clients_call_that_cannot_be_read_is_left_to_it_as_it_came(wire):
    _, builder, rows = await run(Script(wire('{"city"')), client_tools={"weather"})
    [call] = builder.output
    assert (call["status"], call["arguments"]) == ("completed", '{"city"')
    assert rows.log == [("asked",)]


async def test_whole_texts_of_outputs_are_dropped_once_they_are_stored():
    stored = []

    async def long(context: Context, arguments: dict) -> str:
        return arguments["city"] * (MAX_TEXT + 1)

    class LongRows(Rows):
        async def save_outcomes(self, outcomes, *, last):
            await super().save_outcomes(outcomes, last=last)
            stored.extend(outcome.full_text for outcome in outcomes)

    tool = replace(TOOLS["weather"], call=long)
    task = Task(
        prepare=lambda items: Request(model="m", items=items),
        stream=Script(),
        tools={"weather": tool},
        parallel=False,
    )
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.start()
    calls = ToolCalls(task, builder, LongRows(), {})
    cities = [raw_call("weather", f'{{"city": "{city}"}}', city) for city in ("a", "b")]
    async for _ in calls.run(cities):
        pass
    assert [text and text[0] for text in stored] == ["a", "b"]
    assert [each.full_text for each in calls.outcomes.values()] == [None, None]


async def test_one_after_another_where_that_is_wanted():
    *_, rows = await run(Script(CALLS, ANSWER), parallel=False)
    answered = [entry for entry in rows.log if entry[0] == "answered"]
    assert answered == [("answered", ["c1"], False), ("answered", ["c2"], True)]


async def test_the_clients_own_tools_are_left_to_it():
    events, builder, rows = await run(Script(CALLS), client_tools={"weather"})
    assert events[-1]["type"] == "response.completed"
    assert kinds(builder) == ["message", "function_call", "function_call"]
    assert rows.log == [("asked",)]


async def test_a_call_of_an_unknown_tool_gets_an_error_output():
    _, builder, _ = await run(Script(CALLS, ANSWER), tools={})
    assert all("Error" in i["output"] for i in builder.output[3:5])


async def test_an_unknown_tool_error_lists_the_available_tools():
    """The client's too, which may have chosen others of its tools."""
    for tools, names in (
        ({}, "forecast"),
        ({"map": TOOLS["weather"]}, "forecast, map"),
    ):
        script = Script(CALLS, ANSWER)
        _, builder, _ = await run(script, tools=tools, client_tools={"forecast"})
        assert {item["output"] for item in builder.output[3:5]} == {
            f"Error: there is no tool named 'weather'; call one of these: {names}."
        }


async def test_steps_are_limited_and_the_reason_is_reported():
    def say(number):
        arguments = f'{{"city": "{number}"}}'
        return [ToolCallDelta(0, f"c{number}", "weather", arguments)]

    events, *_ = await run(Script(*map(say, range(9))), max_steps=3)
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_steps"}
    assert sum(e["type"] == "parley:step.started" for e in events) == 3


async def test_a_paused_provider_is_called_again_with_the_current_items():
    script = Script([TextDelta(0, "Let me"), FinishDelta("pause")], ANSWER)
    events, builder, _ = await run(script)
    assert kinds(builder) == ["message", "message"]
    assert [len(request.items) for request in script.requests] == [0, 1]
    assert events[-1]["type"] == "response.completed"


async def test_a_provider_that_only_pauses_comes_to_an_end():
    script = Script([FinishDelta("pause")])
    events, *_ = await run(script, max_steps=3)
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_steps"}
    assert len(script.requests) == 3


async def test_an_empty_answer_is_an_answer():
    script = Script([FinishDelta("stop")])
    batches, *_ = start(script)
    batches_seen = [batch async for batch in batches]
    assert batches_seen[-1][-1]["type"] == "response.completed"
    assert all(batches_seen)  # publishers look at the first event of each
    assert len(script.requests) == 1


async def test_a_failure_keeps_the_text_so_far():
    events, builder, _ = await run(Script([TextDelta(0, "Well"), ProviderDown()]))
    assert [e["type"] for e in events[-2:]] == ["error", "response.failed"]
    assert builder.output[0]["status"] == "incomplete"


async def test_calls_of_a_cut_off_answer_are_never_run():
    events, builder, rows = await run(Script([*CALLS[:3], ProviderDown()]))
    assert kinds(builder) == ["message", "function_call", "function_call"]
    assert {item["status"] for item in builder.output[1:]} == {"incomplete"}
    assert rows.log == [("asked",)]
    assert events[-1]["type"] == "response.failed"


async def test_stopped_it_ends_in_order_and_hangs_up():
    script = Script([TextDelta(0, "Well"), HANG])
    batches, builder, _ = start(script)
    events = []

    async def follow():
        async for batch in batches:
            events.extend(batch)

    task = asyncio.ensure_future(follow())
    while not builder.partial():
        await asyncio.sleep(0)
    task.cancel()
    await task
    assert script.closed == 1
    assert events[-1]["response"]["incomplete_details"] == {"reason": "cancelled"}
    assert builder.output[0]["content"][0]["text"] == "Well"


@pytest.mark.parametrize("moment", range(40))
async def test_stopped_at_any_moment_it_ends_in_order(moment):
    script = Script(CALLS, ANSWER, pause=True)
    batches, builder, _ = start(script)
    events = []

    async def follow():
        async for batch in batches:
            events.extend(batch)

    task = asyncio.ensure_future(follow())
    for _ in range(moment):
        await asyncio.sleep(0)
    if moment:
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [e["type"] in TERMINAL for e in events] == [False] * (len(events) - 1) + [
        True
    ]
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(2, 2 + len(numbers)))
    for kind in ("added", "done"):
        item_events = [e for e in events if e["type"] == f"response.output_item.{kind}"]
        assert len(item_events) == len(builder.output)
    assert len(asyncio.all_tasks()) == 1


async def test_without_a_reason_a_cancellation_is_no_end():
    """The server ends a request without one; its text must not pass for an answer."""
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.start()
    script = Script([TextDelta(0, "Well"), HANG])
    task = Task(
        prepare=lambda items: Request(model="m", items=items),
        stream=script,
        tools=TOOLS,
    )

    async def read() -> None:
        async for _ in respond(task, builder=builder, record=Rows()):
            pass

    reading = asyncio.ensure_future(read())
    while not builder.partial():
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not builder.ended
    assert script.closed == 1


async def test_a_turn_that_used_all_of_its_size_before_an_interruption_ends():
    """Without another call, whose first batch might hold nothing that counts."""
    script = Script([UsageDelta(input_tokens=1)])
    size = AnswerSize(8, [{"type": "function_call", "arguments": "12345678"}])
    events, _, rows = await run(script, answer_size=size)
    assert script.requests == []
    assert rows.log == []
    assert events[-1]["response"]["incomplete_details"]["reason"] == "max_answer_size"


def test_what_hosted_tools_make_is_limited_for_each_call(monkeypatch):
    monkeypatch.setattr(answer_size, "MAX_BODY", 40)
    size = AnswerSize(1000)
    picture = [ItemDelta(0, {"result": "x" * 20})]
    for _ in range(3):
        size.begin_call()
        assert size.take(picture) is picture
    size.take([ItemDelta(1, {"result": "x" * 20})])
    assert size.is_exceeded


FILTERED = [
    ToolCallDelta(0, "c1", "weather", '{"city": "Riga"}'),
    CloseDelta(0),
    UsageDelta(10, 5),
    FinishDelta("content_filter"),
]


@pytest.mark.parametrize(
    "changes",
    [{}, {"client_tools": {"weather"}}, {"needs_approval": lambda call, output: True}],
)
async def test_calls_of_a_filtered_answer_are_not_run(changes):
    """The provider has withdrawn the answer."""
    events, builder, rows = await run(Script(FILTERED, ANSWER), **changes)
    assert kinds(builder) == ["function_call"]
    assert rows.log == [("asked",)]
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"]["reason"] == "content_filter"


@pytest.mark.parametrize(
    "deltas",
    [
        chat_calls('{"city": "Riga"}', reason="content_filter"),
        messages_calls('{"city": "Riga"}', reason="refusal"),
    ],
    ids=["chat", "messages"],
)
async def test_calls_before_a_refusal_are_not_run(deltas):
    events, builder, rows = await run(Script(deltas, ANSWER))
    assert "function_call_output" not in kinds(builder)
    assert rows.log == [("asked",)]
    assert events[-1]["response"]["incomplete_details"]["reason"] == "content_filter"


@pytest.mark.parametrize(("parallel", "at_once"), [(True, MAX_PARALLEL), (False, 1)])
async def test_calls_that_wait_for_others_are_saved_when_they_begin(parallel, at_once):
    """After a crash, a call that is saved counts as one that may have taken effect."""
    may_end = asyncio.Event()
    begun = []

    @tool
    async def dig(n: int) -> str:
        begun.append(f"c{n}")
        saved = {c for each in rows.log if each[0] == "called" for c in each[1]}
        assert f"c{n}" in saved
        if n < at_once:
            assert saved == {f"c{n}" for n in range(at_once)}
            may_end.set()
        await may_end.wait()
        return "gold"

    calls = [
        ToolCallDelta(n, f"c{n}", "dig", json.dumps({"n": n}))
        for n in range(MAX_PARALLEL + 4)
    ]
    script = Script([*calls, FinishDelta("tool_calls")], ANSWER)
    batches, builder, rows = start(
        script, tools={"dig": get_tool(dig)}, parallel=parallel
    )
    async for _ in batches:
        pass
    outputs = [i for i in builder.output if i["type"] == "function_call_output"]
    assert [each["output"] for each in outputs] == ["gold"] * (MAX_PARALLEL + 4)
    assert sorted(begun) == sorted(each.call_id for each in calls)
    saved = [each for each in rows.log if each[0] == "called" and each[1]]
    assert saved[0][1] == [f"c{n}" for n in range(at_once)]
