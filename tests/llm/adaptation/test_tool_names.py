"""Tools whose names one API does not allow are called by their own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from llm.adaptation.adapt import Adaptation
from llm.wire.codecs.anthropic.messages import wire_name
from llm.wire.deltas import ItemDelta, TextDelta, ToolCallDelta
from llm.wire.items import function_call_output, user_message
from llm.wire.request import Request
from tests.llm.hosts import route_at

CLAUDE = route_at("anthropic", model="claude-opus-5-5")
LONG = "n" * 70


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}}


def asking(*names: str, **more: Any) -> Request:
    tools = [function(name) for name in names]
    fields = {"items": [user_message("Hi")], "tools": tools, **more}
    return Request(model=CLAUDE.model, **fields)


def sent(request: Request) -> dict[str, Any]:
    return CLAUDE.endpoint.codec.encode(Adaptation(request, CLAUDE).request)


def test_a_call_has_the_name_that_the_request_declares():
    names = ["server.look", "server/look", "server_look", LONG]
    request = asking(*names)
    wire_names = [tool["name"] for tool in sent(request)["tools"]]
    assert len(set(wire_names)) == len(names)
    assert all(len(name) <= 64 and "." not in name for name in wire_names)
    adaptation = Adaptation(request, CLAUDE)
    deltas = adaptation.feed(
        [ToolCallDelta(n, f"c{n}", name) for n, name in enumerate(wire_names)]
    )
    assert [delta.name for delta in deltas] == names
    assert not adaptation.is_plain


def test_the_rest_of_an_answer_is_left_alone():
    adaptation = Adaptation(asking("server.look"), CLAUDE)
    deltas = [TextDelta(0, "Hi"), ToolCallDelta(1, arguments="{}")]
    deltas.append(ToolCallDelta(2, "c", "look"))
    assert adaptation.feed(deltas) == deltas


@pytest.mark.parametrize("names", [(), ("look",)])
def test_usual_names_cost_nothing(names: tuple[str, ...]):
    assert Adaptation(asking(*names), CLAUDE).is_plain


def test_a_name_is_the_same_in_history_choice_and_declaration():
    call = {"type": "function_call", "call_id": "c1", "arguments": "{}"}
    called = {**call, "name": "server.look"}
    items = [user_message("Hi"), called, function_call_output("c1", "found")]
    choice = {"type": "function", "name": "server.look"}
    request = asking("server.look", items=items, tool_choice=choice)
    body = CLAUDE.endpoint.codec.encode(replace(request, model="claude-opus-4-1"))
    [tool] = body["tools"]
    assert body["messages"][1]["content"][0]["name"] == tool["name"]
    assert body["tool_choice"]["name"] == tool["name"]


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
def test_openais_apis_get_names_that_they_take(wire: str):
    route = route_at("openai", wire, model="gpt-5.6")
    call = {"type": "function_call", "call_id": "c1", "arguments": "{}", "name": LONG}
    items = [user_message("Hi"), call, function_call_output("c1", "found")]
    choice = {"type": "function", "name": LONG}
    request = asking(LONG, "look", items=items, tool_choice=choice)
    adaptation = Adaptation(replace(request, model=route.model), route)
    body = route.endpoint.codec.encode(adaptation.request)
    text = json.dumps(body)
    name = wire_name(LONG)
    assert LONG not in text
    assert text.count(name) == 3  # the declaration, the choice and the history
    [delta] = adaptation.feed([ToolCallDelta(0, "c2", name)])
    assert isinstance(delta, ToolCallDelta)
    assert delta.name == LONG
    usual = replace(asking("look"), model=route.model)
    assert Adaptation(usual, route).is_plain


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
@pytest.mark.parametrize("declared", [(), ("look",), ("server.find",)])
def test_calls_of_tools_that_are_gone_have_names_that_openai_takes(
    wire: str, declared: tuple[str, ...]
):
    route = route_at("openai", wire, model="gpt-5.6")
    items = [user_message("Hi")]
    for number, name in enumerate([LONG, "server.look"]):
        call = {"type": "function_call", "call_id": f"c{number}", "arguments": "{}"}
        items += [{**call, "name": name}, function_call_output(f"c{number}", "found")]
    request = replace(asking(*declared, items=items), model=route.model)
    text = json.dumps(route.endpoint.codec.encode(Adaptation(request, route).request))
    assert LONG not in text
    assert "server.look" not in text
    assert wire_name(LONG) in text
    assert wire_name("server.look") in text


@pytest.mark.parametrize("wire", ["openai_chat", "openai_responses"])
def test_a_custom_call_has_the_name_that_the_request_declares(wire: str):
    route = route_at("openai", wire, model="gpt-5.6")
    request = replace(
        asking(), model=route.model, tools=[{"type": "custom", "name": LONG}]
    )
    call = {"type": "custom_tool_call", "call_id": "c1", "input": "x"}
    adaptation = Adaptation(request, route)
    [delta] = adaptation.feed([ItemDelta(0, {**call, "name": wire_name(LONG)})])
    assert isinstance(delta, ItemDelta)
    assert delta.item == {**call, "name": LONG}
