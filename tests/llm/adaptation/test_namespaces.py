"""Functions in namespaces reach every API, and come back as the client declares."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llm.adaptation.adapt import Adaptation
from llm.provider import Route
from llm.wire.deltas import CloseDelta, ToolCallDelta
from llm.wire.items import function_call_output, new_id, user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from tests.llm.hosts import route_at

CLAUDE = route_at("anthropic", model="claude-opus-5-5")
CHAT = route_at("openai", "openai_chat", model="gpt-5.6")
GEMINI = route_at("gemini", model="gemini-3-pro")
RESPONSES = route_at("openai", "openai_responses", model="gpt-5.6")
NO_TOOLS = route_at("openai", "openai_responses", "m", {"tools": False})


def function(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {}}
    return {"type": "function", "name": name, "parameters": schema, **more}


def namespace(name: str, *tools: dict[str, Any]) -> dict[str, Any]:
    about = f"About {name}."
    return {"type": "namespace", "name": name, "description": about, "tools": [*tools]}


AGENTS = namespace("agents", function("spawn", description="Starts."), function("stop"))
CALENDAR = namespace("mcp__calendar__", function("stop"))


def call(call_id: str, space: str, name: str) -> dict[str, Any]:
    fields = {"call_id": call_id, "namespace": space, "name": name}
    return {"type": "function_call", **fields, "arguments": "{}"}


def adapt(route: Route, **fields: Any) -> Adaptation:
    fields = {"items": [user_message("Hi")], "tools": [AGENTS, CALENDAR], **fields}
    return Adaptation(Request(model=route.model, **fields), route)


def body_of(adaptation: Adaptation) -> dict[str, Any]:
    return adaptation.route.endpoint.codec.encode(adaptation.request)


def names_in(adaptation: Adaptation) -> list[str]:
    return [tool["name"] for tool in adaptation.request.tools]


@pytest.mark.parametrize("route", [CLAUDE, CHAT, GEMINI], ids=["claude", "chat", "g"])
def test_the_functions_reach_hosts_that_have_no_namespaces(route: Route):
    items = [
        user_message("Hi"),
        call("c1", "agents", "spawn"),
        function_call_output("c1", "started"),
    ]
    text = json.dumps(body_of(adapt(route, items=items)))
    assert text.count('"agents__spawn"') >= 2  # the declaration and the history
    for each in ("agents__stop", "mcp__calendar__stop", "About agents.", "Starts."):
        assert each in text
    assert '"namespace"' not in text


@pytest.mark.parametrize("route", [CLAUDE, CHAT], ids=["claude", "chat"])
def test_a_call_comes_back_in_its_namespace(route: Route):
    adaptation = adapt(route)
    assert not adaptation.is_plain
    builder = ResponseBuilder(id=new_id("resp"), model="m")
    builder.start()
    builder.begin_call()
    for number, name in enumerate(names_in(adaptation)):
        deltas = [ToolCallDelta(number, f"c{number}", name), CloseDelta(number)]
        builder.feed(adaptation.feed(deltas))
    builder.end_call()
    assert [(item["namespace"], item["name"]) for item in builder.output] == [
        ("agents", "spawn"),
        ("agents", "stop"),
        ("mcp__calendar__", "stop"),
    ]


def test_names_are_short_and_apart():
    tools = [
        namespace("n" * 60, function("a" * 60), function("b" * 60)),
        function("x__y"),
        namespace("x", function("y")),
        namespace("x__", function("y")),
    ]
    adaptation = adapt(CHAT, tools=tools)
    names = names_in(adaptation)
    assert len({*names}) == 5
    assert all(len(name) <= 64 for name in names)
    assert "x__y" in names
    deltas = adaptation.feed(
        [ToolCallDelta(number, "c", name) for number, name in enumerate(names)]
    )
    calls = [each for each in deltas if isinstance(each, ToolCallDelta)]
    assert [(each.namespace, each.name) for each in calls] == [
        ("n" * 60, "a" * 60),
        ("n" * 60, "b" * 60),
        ("", "x__y"),
        ("x", "y"),
        ("x__", "y"),
    ]


def test_a_choice_names_the_functions():
    chosen = adapt(CHAT, tool_choice={"type": "function", "name": "spawn"})
    assert chosen.request.tool_choice == {"type": "function", "name": "agents__spawn"}
    allowed = [{"type": "namespace", "name": "agents"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": allowed}
    limited = adapt(CHAT, tool_choice=choice).request.tool_choice
    assert isinstance(limited, dict)
    names = [each["name"] for each in limited["tools"]]
    assert names == ["agents__spawn", "agents__stop"]
    twice = adapt(CHAT, tool_choice={"type": "function", "name": "stop"})
    assert isinstance(twice.request.tool_choice, dict)
    assert twice.request.tool_choice["mode"] == "required"


def test_a_host_of_responses_gets_the_namespaces():
    items = [
        user_message("Hi"),
        call("c1", "agents", "spawn"),
        function_call_output("c1", "started"),
    ]
    body = body_of(adapt(RESPONSES, items=items))
    assert body["tools"][0]["tools"][0]["name"] == "spawn"
    assert body["input"][1]["namespace"] == "agents"
    assert adapt(RESPONSES).is_plain


def test_a_model_without_tools_reads_of_the_functions():
    adaptation = adapt(NO_TOOLS)
    assert "agents__spawn" in adaptation.request.instructions
    assert not adaptation.request.tools


def test_a_call_of_a_namespace_that_is_gone_is_a_call_still():
    items = [
        user_message("Hi"),
        call("c1", "agents", "spawn"),
        function_call_output("c1", "started"),
    ]
    text = json.dumps(body_of(adapt(CHAT, items=items, tools=[])))
    assert "agents__spawn" in text


def test_a_host_s_own_call_keeps_its_namespace():
    answer = {"status": "completed", "output": [call("c1", "agents", "spawn")]}
    deltas = list(RESPONSES.endpoint.codec.decode(json.dumps(answer).encode()))
    [found] = [each for each in deltas if isinstance(each, ToolCallDelta) and each.name]
    assert (found.namespace, found.name) == ("agents", "spawn")
