from __future__ import annotations

import pytest

from llm.wire.items import function_call_output, message, user_message
from tools.loop.late_results import result_message
from tools.loop.steps import (
    EQUAL_CALLS,
    AwaitClient,
    CallTools,
    Finish,
    Generate,
    calls_without_output,
    choice_after_calls,
    is_allowed,
    is_midway,
    next_step,
)

USER = user_message("hi")
ANSWER = message("assistant", "Hello.")
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}


def call(number, name="weather", arguments="{}", status="completed"):
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def output(number):
    return function_call_output(f"call_{number}", "sunny")


CUT = call(1, status="incomplete")


@pytest.mark.parametrize(
    ("output", "ended_output", "step"),
    [
        ([], None, Generate()),
        ([], 0, Finish()),  # an empty answer is an answer
        ([ANSWER], 1, Finish()),
        ([ANSWER], None, Generate()),  # a crash left it, or its provider paused
        ([THOUGHT], None, Generate()),
        ([THOUGHT, ANSWER], 1, Generate()),
        ([call(1)], 1, CallTools([call(1)])),
        ([call(1), call(2)], 2, CallTools([call(1), call(2)])),
        ([call(1), call(2), output(1)], 2, CallTools([call(2)])),
        ([call(1), output(1)], 1, Generate()),
        ([call(1), output(1)], 2, Finish()),
        ([ANSWER, USER], 1, Generate()),
        ([{"type": "computer_call", "call_id": "c"}], 1, Finish()),
        ([CUT], 1, Finish()),
        ([call(1, "theirs")], 1, AwaitClient([call(1, "theirs")])),
        ([call(1, "theirs"), call(2)], 2, CallTools([call(2)])),
        (
            [call(1, "theirs"), call(2), output(2)],
            2,
            AwaitClient([call(1, "theirs")]),
        ),
    ],
)
def test_the_output_determines_the_next_step(output, ended_output, step):
    found = next_step(
        output, ended_output=ended_output, client_tools={"theirs"}, steps_left=3
    )
    assert found == step


def test_without_steps_left_the_model_is_not_called_again():
    items = [call(1), output(1)]
    step = next_step(items, ended_output=1, steps_left=0)
    assert step == Finish("max_steps")


def test_a_model_in_circles_is_stopped():
    items = []
    for number in range(3):
        items += [call(number), output(number)]
    step = next_step(items, ended_output=5, steps_left=9)
    assert step == Finish("repeated_tool_calls")
    items[-2] = call(2, arguments='{"city": "Riga"}')
    assert next_step(items, ended_output=5, steps_left=9) == Generate()


def test_a_model_that_waits_for_a_job_is_shown_its_result():
    items = []
    for number, text in enumerate(["pending", "pending", "done: 42"]):
        items += [call(number), {**output(number), "output": text}]
    assert next_step(items, ended_output=5, steps_left=9) == Generate()
    items[-1] = {**items[-1], "output": "pending"}
    step = next_step(items, ended_output=5, steps_left=9)
    assert step == Finish("repeated_tool_calls")


def test_a_message_between_lets_the_model_repeat_its_call():
    items = []
    for number in range(3):
        items += [call(number), output(number)]
    items.insert(4, USER)
    assert next_step(items, ended_output=6, steps_left=9) == Generate()


@pytest.mark.parametrize("in_background", [False, True])
def test_equal_calls_end_at_last_whatever_their_outputs(in_background):
    items, rounds = [], 0
    while next_step(items, ended_output=-1, steps_left=9) == Generate():
        rounds += 1
        assert rounds < 50
        text = f"failed at {rounds}"
        items += [call(rounds), {**output(rounds), "output": text}]
        if in_background:
            items.append(result_message(f"call_{rounds}", "weather", text))
    assert next_step(items, ended_output=-1, steps_left=9) == (
        Finish("repeated_tool_calls")
    )
    assert rounds == EQUAL_CALLS
    items.append(USER)
    assert next_step(items, ended_output=-1, steps_left=9) == Generate()


@pytest.mark.parametrize(
    ("output", "ended_output", "midway"),
    [
        ([], None, False),
        ([USER], None, False),  # results that came before the first model call
        ([ANSWER], None, True),
        ([ANSWER], 1, False),
        ([call(1), output(1)], 1, False),
        ([call(1), output(1), THOUGHT], 1, True),
    ],
)
def test_an_answer_that_no_host_has_ended_is_midway(output, ended_output, midway):
    assert is_midway(output, ended_output) is midway


def test_a_call_cut_short_is_never_run():
    assert calls_without_output([USER, CUT, call(2)]) == [call(2)]


ALLOWED = {
    "type": "allowed_tools",
    "mode": "required",
    "tools": [
        {"type": "function", "name": "a"},
        {"type": "custom", "name": "b"},
        {"type": "mcp", "server_label": "s", "name": "c"},
        {"type": "web_search"},
    ],
}


def test_a_choice_among_some_tools_leaves_out_the_others():
    assert [name for name in "abcd" if is_allowed(name, ALLOWED)] == ["a", "b"]
    for choice in (None, "auto", "required", {"type": "function", "name": "a"}):
        assert all(is_allowed(name, choice) for name in "abcd")


def test_after_a_call_the_model_may_answer_and_call_what_was_allowed():
    assert choice_after_calls(ALLOWED) == {**ALLOWED, "mode": "auto"}
    assert [choice_after_calls(c) for c in (None, "none", "auto")] == [
        None,
        "none",
        "auto",
    ]
    assert choice_after_calls("required") == "auto"
    assert choice_after_calls({"type": "function", "name": "a"}) == "auto"
