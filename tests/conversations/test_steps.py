from __future__ import annotations

import pytest

from conversations.steps import (
    AwaitClient,
    CallTools,
    Finish,
    Generate,
    choice_after_calls,
    is_allowed,
    next_step,
    unanswered_calls,
)
from llm.wire.items import function_call_output, message, user_message

USER = user_message("hi")
SAID = message("assistant", "Hello.")


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
    ("items", "step"),
    [
        ([USER], Generate()),
        ([USER, SAID], Finish()),
        ([USER, call(1)], CallTools([call(1)])),
        ([USER, call(1), call(2)], CallTools([call(1), call(2)])),
        ([USER, call(1), call(2), output(1)], CallTools([call(2)])),
        ([USER, call(1), output(1)], Generate()),
        ([{"type": "computer_call_output", "call_id": "c"}], Generate()),
        ([{"type": "mcp_approval_response", "approve": True}], Generate()),
        ([USER, {"type": "computer_call", "call_id": "c"}], Finish()),
        ([USER, CUT], Finish()),
        ([USER, call(1, "theirs")], AwaitClient([call(1, "theirs")])),
        ([USER, call(1, "theirs"), call(2)], CallTools([call(2)])),
        (
            [USER, call(1, "theirs"), call(2), output(2)],
            AwaitClient([call(1, "theirs")]),
        ),
        ([], Finish()),
    ],
    ids=lambda value: None if isinstance(value, list) else type(value).__name__,
)
def test_the_items_say_what_is_next(items, step):
    assert next_step(items, client_tools={"theirs"}, steps_left=3) == step


def test_without_steps_left_the_model_is_not_asked_again():
    items = [USER, call(1), output(1)]
    assert next_step(items, steps_left=0) == Finish("max_steps")


def test_a_model_in_circles_is_stopped():
    items = [USER]
    for number in range(3):
        items += [call(number), output(number)]
    assert next_step(items, steps_left=9) == Finish("repeated_tool_calls")
    items[-2] = call(2, arguments='{"city": "Riga"}')
    assert next_step(items, steps_left=9) == Generate()


def test_a_call_cut_short_is_never_run():
    assert unanswered_calls([USER, CUT, call(2)]) == [call(2)]


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
