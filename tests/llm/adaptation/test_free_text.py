"""Tools that take free text work at every API, and their calls come back as such."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llm.adaptation.adapt import Adaptation
from llm.provider import Route
from llm.wire.deltas import CloseDelta, Delta, ProofDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from tests.llm.hosts import route_at

CLAUDE = route_at("anthropic", model="claude-opus-5-5")
CHAT = route_at("openai", "openai_chat", model="gpt-5.6")
GEMINI = route_at("gemini", model="gemini-3-pro")
RESPONSES = route_at("openai", "openai_responses", model="gpt-5.6")
NO_TOOLS = route_at("openai", "openai_responses", "m", {"tools": False})
HOSTS = pytest.mark.parametrize("route", [CLAUDE, GEMINI], ids=["claude", "gemini"])

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin"'}
PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": GRAMMAR,
}
CALL = {
    "type": "custom_tool_call",
    "call_id": "call_1",
    "name": "apply_patch",
    "input": "*** Begin",
}
OUTPUT = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done."}


def adapt(route: Route, **fields: Any) -> Adaptation:
    fields = {"items": [user_message("Hi")], "tools": [PATCH], **fields}
    return Adaptation(Request(model=route.model, **fields), route)


def body_of(adaptation: Adaptation) -> str:
    return json.dumps(adaptation.route.endpoint.codec.encode(adaptation.request))


def output_of(adaptation: Adaptation, deltas: list[Delta]) -> list[dict[str, Any]]:
    """The items of an answer whose deltas arrive one by one."""
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.start()
    builder.begin_call()
    for delta in deltas:
        builder.feed(adaptation.feed([delta]))
    builder.feed(adaptation.close())
    builder.end_call()
    return [
        {name: value for name, value in item.items() if name != "id"}
        for item in builder.output
    ]


@HOSTS
def test_a_host_gets_a_function_of_one_text_with_the_grammar_in_words(route: Route):
    body = body_of(adapt(route))
    assert "apply_patch" in body
    assert "Edits files." in body
    assert "*** Begin" in body
    assert '"input": {"type": "string"}' in body.lower()
    assert adapt(route).degraded == ["tools"]


@HOSTS
@pytest.mark.parametrize(
    "choice",
    [
        {"type": "custom", "name": "apply_patch"},
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "custom", "name": "apply_patch"}],
        },
    ],
    ids=["one", "some"],
)
def test_a_choice_of_such_a_tool_is_one_of_the_function(route: Route, choice: Any):
    assert "apply_patch" in body_of(adapt(route, tool_choice=choice))


@pytest.mark.parametrize("route", [CHAT, RESPONSES], ids=["chat", "responses"])
def test_hosts_that_have_such_tools_get_them_unchanged(route: Route):
    adaptation = adapt(route)
    assert list(adaptation.request.tools) == [PATCH]
    assert adaptation.degraded == []


@pytest.mark.parametrize("route", [CLAUDE, GEMINI, NO_TOOLS], ids=["claude", "g", "no"])
def test_the_history_tells_what_was_called_and_what_came_of_it(route: Route):
    body = body_of(adapt(route, items=[user_message("Hi"), CALL, OUTPUT]))
    assert body.count("*** Begin") == 2  # in the grammar, and in the call
    assert "Done." in body


@HOSTS
def test_a_call_comes_back_with_its_text(route: Route):
    adaptation = adapt(route)
    pieces = ['{"inp', 'ut": "a\\n', '\\"b\\""}']
    deltas: list[Delta] = [
        TextDelta("text", "I edit."),
        ToolCallDelta("call", "toolu_1", "apply_patch"),
        ProofDelta("call", {"type": "tool_use"}),
        *[ToolCallDelta("call", arguments=piece) for piece in pieces],
        CloseDelta("call"),
    ]
    _, item = output_of(adaptation, deltas)
    assert item == {
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "toolu_1",
        "name": "apply_patch",
        "input": 'a\n"b"',
    }


@pytest.mark.parametrize(
    "arguments",
    ["*** Begin", '["*** Begin"]', '{"patch": "x"}', '{"input": 1}', "[" * 9_999],
)
def test_a_model_that_writes_no_object_still_calls(arguments: str):
    deltas: list[Delta] = [
        ToolCallDelta("call", "toolu_1", "apply_patch", arguments),
        CloseDelta("call"),
    ]
    [item] = output_of(adapt(CLAUDE), deltas)
    assert (item["status"], item["input"]) == ("completed", arguments)


def test_a_call_that_is_cut_off_is_incomplete():
    deltas: list[Delta] = [ToolCallDelta("call", "t", "apply_patch", '{"input": "*')]
    [item] = output_of(adapt(CLAUDE), deltas)
    assert (item["type"], item["status"]) == ("custom_tool_call", "incomplete")


def test_two_calls_side_by_side_and_a_function_stay_apart():
    function = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    adaptation = adapt(CLAUDE, tools=[PATCH, function])
    deltas: list[Delta] = [
        ToolCallDelta("a", "t1", "apply_patch"),
        ToolCallDelta("b", "t2", "apply_patch"),
        ToolCallDelta("c", "t3", "read", "{}"),
        ToolCallDelta("b", arguments='{"input": "B"}'),
        ToolCallDelta("a", arguments='{"input": "A"}'),
        *map(CloseDelta, "abc"),
    ]
    items = output_of(adaptation, deltas)
    found = {
        item["call_id"]: item.get("input", item.get("arguments")) for item in items
    }
    assert found == {"t1": "A", "t2": "B", "t3": "{}"}


def test_a_tool_in_a_namespace_comes_back_in_it():
    group = {"type": "namespace", "name": "edit", "tools": [PATCH]}
    adaptation = adapt(CLAUDE, tools=[group])
    [tool] = adaptation.request.tools
    deltas: list[Delta] = [
        ToolCallDelta("call", "t", tool["name"], '{"input": "x"}'),
        CloseDelta("call"),
    ]
    [item] = output_of(adaptation, deltas)
    assert (item["namespace"], item["name"], item["input"]) == (
        "edit",
        "apply_patch",
        "x",
    )


def test_a_model_without_tools_calls_it_in_words():
    adaptation = adapt(NO_TOOLS)
    text = '{"tool": "apply_patch", "input": {"input": "x"}}'
    item = output_of(adaptation, [TextDelta("text", text)])[-1]
    assert (item["type"], item["input"]) == ("custom_tool_call", "x")
