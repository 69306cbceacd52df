from __future__ import annotations

import asyncio
import logging
import math
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import execute as module
from tools.errors import ToolError
from tools.execute import CallOutcome, CallProgress, execute
from tools.registry import Accepted, Context, FormAnswer, RuntimeTool, get_tool, tool

from .calls import call, happenings, outcome, raw_call

LIMIT = 0.5  # seconds
SECRET = "s3cret-argument"


@tool
async def echo(text: str) -> str:
    return text


@tool
def slow_echo(text: str) -> str:
    return text


@tool
async def broken(text: str) -> str:
    raise KeyError(text)


@tool
async def refuses(text: str) -> str:
    raise ToolError(f"{text!r} will not do.")


@tool(timeout=0.01)
async def hangs(text: str) -> str:
    await asyncio.Event().wait()
    return text


@tool
async def opaque(text: str) -> object:
    return object()


ALL = [echo, slow_echo, broken, refuses, hangs, opaque]
STATES = {
    "echo": "completed",
    "slow_echo": "completed",
    "broken": "failed",
    "refuses": "failed",
    "hangs": "timed_out",
    "opaque": "failed",
    "nobody": "failed",
}


@given(st.lists(st.tuples(st.sampled_from(sorted(STATES)), st.booleans()), max_size=6))
def test_every_call_has_exactly_one_outcome(plan):
    calls = [
        call(name, f"c{number}", text="x")
        if is_valid
        else raw_call(name, '{"text"', f"c{number}")
        for number, (name, is_valid) in enumerate(plan)
    ]
    events = asyncio.run(happenings(calls, *ALL))
    assert sorted(each.call_id for each in events) == [c["call_id"] for c in calls]
    for each in events:
        name, is_valid = plan[int(each.call_id[1:])]
        assert isinstance(each, CallOutcome)
        assert each.state == (STATES[name] if is_valid else "failed")
        assert each.output.startswith("Error: ") == (each.state != "completed")
        assert bool(each.error) == (each.state != "completed")
        assert each.seconds >= 0


@pytest.mark.parametrize(
    ("made", "output"),
    [
        (call("echo", text="hi"), "hi"),
        (call("functions.echo", text="hi"), "hi"),
        (call("default_api.echo", text="hi"), "hi"),
        (call("broken", text=SECRET), "Error: broken failed: KeyError."),
        (call("refuses", text="hi"), "Error: 'hi' will not do."),
        (
            call("hangs", text="hi"),
            "Error: hangs took longer than 0.01 seconds and timed out; what it began"
            " may still take effect.",
        ),
        (
            call("opaque", text="hi"),
            "Error: its result, of type object, cannot be written as JSON.",
        ),
        (
            call("echo", text=3),
            "Error: the arguments do not fit: at text: the value is not of type"
            ' "string".',
        ),
        (raw_call("echo", "[]"), "Error: the arguments must be a JSON object."),
        (
            raw_call("echo", ""),
            'Error: the arguments do not fit: "text" is a required property.',
        ),
        (
            call("nobody"),
            "Error: there is no tool named 'nobody'; call one of these: broken, echo,"
            " hangs, opaque, refuses, slow_echo.",
        ),
    ],
)
async def test_outputs_as_the_model_reads_them(made, output):
    (event,) = await happenings([made], *ALL)
    assert event.output == output
    if output.startswith("Error: "):
        assert event.error == output.removeprefix("Error: ")


async def test_unparsable_arguments_are_reported_as_such():
    (event,) = await happenings([raw_call("echo", '{"text": ')], *ALL)
    assert event.output.startswith("Error: the arguments are not valid JSON:")


async def test_an_integer_that_would_be_rounded_is_refused():
    ran = []

    @tool
    async def transfer(amount: int) -> None:
        ran.append(amount)

    seen = await outcome(transfer, amount=10**20 + 1)
    assert seen.error == (
        "the integer 100000000000000000001 is beyond 64 bits and would be rounded;"
        " write it as text where the parameter takes text."
    )
    assert ran == []
    assert (await outcome(transfer, amount=2**63 - 1)).state == "completed"
    assert ran == [2**63 - 1]


async def test_a_call_without_any_tools_gets_an_error():
    (event,) = await happenings([call("echo")])
    assert event.output == (
        "Error: there is no tool named 'echo'; no tool may be called now."
    )


async def test_no_calls_no_happenings():
    assert await happenings([]) == []


async def test_nothing_runs_with_arguments_that_do_not_fit():
    ran = []

    @tool
    async def once(number: int) -> None:
        ran.append(number)

    for arguments in ('{"number": "1"}', '{"number": 1, "more": 2}', "{", "null"):
        (event,) = await happenings([raw_call("once", arguments)], once)
        assert event.state == "failed"
    assert ran == []


async def test_calls_run_concurrently_and_report_as_they_end():
    gates = [asyncio.Event() for _ in range(4)]
    gates[3].set()

    @tool
    async def wait(number: int) -> int:
        await gates[number + 1].wait()
        gates[number].set()
        return number

    calls = [call("wait", f"c{number}", number=number) for number in range(3)]
    events = await happenings(calls, wait)
    assert [each.call_id for each in events] == ["c2", "c1", "c0"]


async def test_progress_comes_before_the_outcome():
    @tool
    async def works(context: Context) -> str:
        for number in range(3):
            context.progress(f"{number} done")
            await asyncio.sleep(0)
        context.progress("x" * 1000)
        return "all"

    *progress, last = await happenings([call("works")], works)
    assert progress[0] == CallProgress("c1", "0 done")
    assert progress[-1] == CallProgress("c1", "x" * 500)
    assert last.output == "all"


async def test_progress_of_a_thread_comes_before_its_outcome():
    @tool
    def works(context: Context) -> str:
        context.progress("half")
        return "all"

    progress, last = await happenings([call("works")], works)
    assert (progress, last.output) == (CallProgress("c1", "half"), "all")


async def test_unread_progress_does_not_pile_up():
    @tool
    async def chatters(context: Context) -> None:
        for number in range(10_000):
            context.progress(f"{number}")

    progress, _ = await happenings([call("chatters")], chatters)
    assert progress == CallProgress("c1", "9999")


async def test_progress_after_the_end_is_dropped():
    callbacks = []

    @tool
    async def leaks(context: Context) -> None:
        callbacks.append(context)

    @tool
    async def follows() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        callbacks[0].progress("late")

    calls = [call("leaks", "c1"), call("follows", "c2")]
    events = await happenings(calls, leaks, follows)
    assert [type(each) for each in events] == [CallOutcome, CallOutcome]
    await asyncio.to_thread(callbacks[0].progress, "later")


def test_progress_after_the_loop_closed_is_no_error():
    callbacks = []

    @tool
    async def leaks(context: Context) -> None:
        callbacks.append(context)

    asyncio.run(happenings([call("leaks")], leaks))
    thread = threading.Thread(target=callbacks[0].progress, args=["late"])
    thread.start()
    thread.join()


async def test_each_call_knows_itself():
    @tool
    async def me(context: Context) -> str:
        return f"{context.user_id} {context.call_id} {context.idempotency_key}"

    calls = [call("me", "c1"), call("me", "c2")]
    events = await happenings(calls, me, context=Context(user_id=7, turn_id="resp_1"))
    assert [each.output for each in events] == ["7 c1 resp_1:c1", "7 c2 resp_1:c2"]


async def test_without_a_timeout_of_its_own_the_setting_counts(settings):
    settings.TOOL_TIMEOUT = 0.01

    @tool
    async def patient() -> None:
        await asyncio.Event().wait()

    assert (await outcome(patient)).state == "timed_out"


async def test_the_time_stands_still_while_one_of_several_forms_is_open():
    """Those of one call; it goes on after the last answer."""
    answers: dict[str, asyncio.Future[FormAnswer]] = {}
    asked = asyncio.Event()

    async def ask(context: Context, message: str, schema: object) -> FormAnswer:
        answers[message] = asyncio.get_running_loop().create_future()
        if len(answers) == 2:
            asked.set()
        return await answers[message]

    @tool(timeout=LIMIT)
    async def hesitant(context: Context) -> str:
        async with asyncio.TaskGroup() as group:
            first = group.create_task(context.asking("First?", {"type": "object"}))
            group.create_task(context.asking("Second?", {"type": "object"}))
            await first
            has_passed = asyncio.Event()
            asyncio.get_running_loop().call_later(2 * LIMIT, has_passed.set)
            await has_passed.wait()
            answers["Second?"].set_result(FormAnswer("accept"))
        await asyncio.Event().wait()
        return ""

    running = asyncio.ensure_future(
        happenings([call("hesitant")], hesitant, context=Context(ask=ask))
    )
    await asked.wait()
    answers["First?"].set_result(FormAnswer("accept"))
    (ended,) = await running
    assert isinstance(ended, CallOutcome)
    assert ended.state == "timed_out"
    assert answers["Second?"].done()
    assert not answers["Second?"].cancelled()


async def test_only_so_many_calls_run_at_once(monkeypatch):
    """The time of a call that waits does not run yet."""
    monkeypatch.setattr(module, "MAX_PARALLEL", 2)
    monkeypatch.setattr(module, "STOP_GRACE", 0)
    gate = asyncio.Event()

    @tool(timeout=0.001)
    async def quick(text: str) -> str:
        return text

    @tool(timeout=0.05)
    async def stubborn() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    calls = [call("stubborn", f"s{number}") for number in range(2)]
    calls += [call("quick", f"c{number}", text="x") for number in range(20)]
    events = await happenings(calls, quick, stubborn)
    assert events[0].call_id == "s0"
    states = sorted(each.state for each in events)
    assert states == ["completed"] * 20 + ["timed_out"] * 2
    gate.set()
    await asyncio.gather(*module.abandoned_tasks)


async def test_a_timeout_that_a_tool_raises_is_a_failure():
    @tool
    async def impatient() -> None:
        raise TimeoutError

    result = await outcome(impatient)
    assert (result.state, result.error) == ("failed", "impatient failed: TimeoutError.")


@pytest.mark.parametrize(
    "exc",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        BaseExceptionGroup("several", [SystemExit()]),
        StopIteration(),
        RecursionError(),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_whatever_a_tool_raises_is_its_own_failure(exc, is_async):
    if is_async:

        @tool
        async def raises() -> None:
            raise exc

    else:

        @tool
        def raises() -> None:
            raise exc

    result = await outcome(raises)
    assert result.state == "failed"
    assert result.error.startswith("raises failed: ")


class Unspeakable(ToolError):
    """Its message ends the process."""

    def __str__(self) -> str:
        raise KeyboardInterrupt


async def test_an_error_without_a_message_is_a_failure():
    @tool
    async def raises() -> None:
        raise Unspeakable

    result = await outcome(raises)
    assert result.error == (
        "the tool failed with an error without a message: Unspeakable."
    )


@pytest.mark.parametrize("is_async", [True, False])
async def test_progress_that_is_no_text_is_the_tools_failure(is_async):
    if is_async:

        @tool
        async def reports(context: Context) -> None:
            context.progress(Unspeakable())

    else:

        @tool
        def reports(context: Context) -> None:
            context.progress(Unspeakable())

    result = await outcome(reports)
    assert result.error == "reports failed: KeyboardInterrupt."


async def test_causes_that_form_a_circle_are_logged_and_end(caplog):
    @tool
    async def raises() -> None:
        one, other = ValueError(), KeyError()
        one.__cause__, other.__cause__ = other, one
        raise one

    result = await outcome(raises)
    assert result.error == "raises failed: ValueError."
    assert "after KeyError" in caplog.text


@pytest.mark.parametrize("seconds", ["soon", math.nan, math.inf, -1, 1e300])
async def test_accepted_work_is_polled_after_some_seconds(seconds):
    @tool
    async def later() -> Accepted:
        return Accepted("job", poll_after=seconds)

    result = await outcome(later)
    assert result.state == "failed"
    assert (
        result.error == "its poll_after is not a number of seconds from 0 to 604,800."
    )


async def test_two_calls_with_the_same_id_have_an_outcome_each():
    calls = [call("echo", "same", text="a"), call("echo", "same", text="b")]
    found = await happenings(calls, echo)
    assert [(each.call_id, each.output) for each in found] == [
        ("same", "a"),
        ("same", "b"),
    ]


async def test_a_thread_that_takes_too_long_is_given_up(caplog):
    gate, left = threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def blocks() -> None:
        gate.wait()
        left.set()

    result = await outcome(blocks)
    assert result.state == "timed_out"
    assert "its thread cannot be stopped" in caplog.text
    gate.set()
    assert await asyncio.to_thread(left.wait)


async def test_a_tool_that_ignores_cancellation_delays_no_other(monkeypatch, caplog):
    monkeypatch.setattr(module, "STOP_GRACE", 0)
    gate = asyncio.Event()

    @tool(timeout=0.01)
    async def stubborn() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    result = await outcome(stubborn)
    assert result.state == "timed_out"
    assert "was abandoned" in caplog.text
    (task,) = module.abandoned_tasks
    gate.set()
    await task
    await asyncio.sleep(0)
    assert not module.abandoned_tasks


async def test_a_late_answer_changes_nothing():
    @tool(timeout=0.01)
    async def late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "after all"

    events = await happenings([call("late")], late)
    assert [each.state for each in events] == ["timed_out"]


async def test_a_schema_that_is_wrong_fails_the_call_and_says_why():
    wrong = replace(
        get_tool(echo), parameters={"$ref": "http://127.0.0.1:9/schema.json"}
    )
    asked = call("echo", text="x")
    (output,) = [each async for each in execute([asked], {"echo": wrong}, Context())]
    assert "cannot be called until an operator corrects it" in output.error
    assert "schemas are never fetched" in output.error
    checked = module.check_call(asked, {"echo": wrong})  # also asked by the tool loop
    assert checked is not None
    assert checked.error == output.error


async def test_other_kinds_of_tools_are_called_alike():
    async def fetch(context, arguments):
        return {"asked": arguments, "by": context.call_id}

    remote = RuntimeTool(name="remote", description="", parameters={}, call=fetch)
    running = execute([call("remote", a=1)], {"remote": remote}, Context())
    (output,) = [each async for each in running]
    assert output.output == '{"asked":{"a":1},"by":"c1"}'


@tool
async def litters(text: str, context: Context) -> object:
    context.progress("at\0 \ud800")
    match text:
        case "token":
            return Accepted("job\0")
        case "parts":
            return [{"type": "input_file", "file_id": "f", "filename": "a\0"}]
    raise ToolError("no\0 \ud800")


@pytest.mark.parametrize(
    ("how", "output"),
    [
        ("error", "Error: no\ufffd \ufffd"),
        ("token", "Error: its token is not text that can be stored."),
        ("parts", [{"type": "input_file", "file_id": "f", "filename": "a\ufffd"}]),
    ],
)
async def test_outputs_of_a_tool_can_be_stored(how, output):
    progress, end = await happenings([call("litters", text=how)], litters)
    assert progress.message == "at\ufffd \ufffd"
    assert (end.output, "\0" in end.error) == (output, False)


async def test_long_errors_are_cut():
    @tool
    async def talks() -> None:
        raise ToolError("x" * 60_000)

    result = await outcome(talks)
    assert len(result.error) == 500
    assert len(result.output) < 51_000


@pytest.mark.parametrize("name", ["broken", "refuses", "hangs", "echo", "nobody"])
async def test_no_argument_is_ever_logged(name, caplog):
    caplog.set_level(logging.DEBUG)
    calls = [
        call(name, "c1", text=SECRET),
        call(name, "c2", text=[SECRET]),
        raw_call(name, f'{{"text": "{SECRET}', "c3"),
    ]
    events = await happenings(calls, *ALL)
    assert len(events) == 3
    assert SECRET not in caplog.text
    if name == "broken":
        assert "tool broken failed: KeyError" in caplog.text
        assert "in broken" in caplog.text


async def test_the_log_contains_the_cause_of_a_failure(caplog):
    @tool
    async def wraps() -> None:
        try:
            raise KeyError(SECRET)
        except KeyError as exc:
            raise ValueError(SECRET) from exc

    await outcome(wraps)
    assert "tool wraps failed: ValueError" in caplog.text
    assert "after KeyError" in caplog.text
    assert SECRET not in caplog.text


@tool
async def tidies(text: str, context: Context) -> str:
    try:
        context.progress("at it")
        for _ in range(5):
            await asyncio.sleep(0)
        return text
    finally:
        await asyncio.sleep(0)


@pytest.mark.parametrize("moment", range(25))
async def test_cancelled_at_any_moment_it_leaves_no_task(moment, monkeypatch):
    monkeypatch.setattr(module, "STOP_GRACE", 60.0)  # a busy machine is slow, not wrong
    calls = [
        call(name, name, text="x") for name in ("tidies", "echo", "broken", "hangs")
    ]
    task = asyncio.create_task(happenings(calls, *ALL, tidies))
    for _ in range(moment):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closed_early_it_stops_what_runs():
    stopped = []

    @tool
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    calls = [call("echo", "c1", text="x"), call("endless", "c2")]
    tools = {"echo": get_tool(echo), "endless": get_tool(endless)}
    running = execute(calls, tools, Context())
    assert (await anext(running)).output == "x"
    await running.aclose()
    assert stopped == [True]
    assert asyncio.all_tasks() == {asyncio.current_task()}
