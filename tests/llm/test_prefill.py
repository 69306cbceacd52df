"""Answers that have begun: who is sent the beginning, how, and who is not."""

from __future__ import annotations

from typing import Any

import pytest

from llm.adapt import Adaptation
from llm.adaptation import repairs
from llm.capabilities import capabilities_of
from llm.errors import BadRequest
from llm.provider import Endpoint, Route
from llm.providers import all_providers
from llm.wire.items import message, user_message
from llm.wire.request import Request

BEGUN = "It was a dark night"
ASKED = [user_message("Tell me a story")]
OLD, NEW = "claude-sonnet-4-5", "claude-sonnet-4-6"


def route_of(kind: str, model: str, base_url: str = "") -> Route:
    provider = all_providers()[kind]
    codec = provider.codec()
    endpoint = Endpoint(provider=provider, codec=codec, base_url=base_url)
    can = capabilities_of(kind, model, wire=codec.name)
    return Route(endpoint=endpoint, model=model, name=model, capabilities=can.to_dict())


def asked_of(route: Route, **fields: Any) -> Request:
    given = {"model": route.model, "items": ASKED, "prefill": BEGUN, **fields}
    return Adaptation(Request(**given), route).request


@pytest.mark.parametrize(
    ("kind", "model", "told"),
    [
        ("mistral", "mistral-large-latest", {"prefix": True}),
        ("deepseek", "deepseek-chat", {"prefix": True}),
        ("vllm", "qwen3", {}),
    ],
)
def test_a_beginning_is_the_last_message(kind, model, told):
    route = route_of(kind, model)
    request = asked_of(route)
    body = route.endpoint.codec.encode(request)
    assert body["messages"][-1] == {"role": "assistant", "content": BEGUN, **told}
    is_marked = kind == "vllm"
    assert (body.get("continue_final_message") is True) is is_marked
    assert (body.get("add_generation_prompt") is False) is is_marked


def test_an_older_claude_is_sent_it_and_a_newer_one_is_not():
    route = route_of("anthropic", OLD)
    body = route.endpoint.codec.encode(asked_of(route))
    begun = [{"type": "text", "text": BEGUN}]
    assert body["messages"][-1] == {"role": "assistant", "content": begun}
    assert asked_of(route_of("anthropic", NEW)).prefill == ""
    assert asked_of(route_of("anthropic", "claude-opus-5-5")).prefill == ""


@pytest.mark.parametrize("kind", ["openai", "groq", "gemini", "ollama", "xai"])
def test_nobody_else_is_sent_it(kind):
    assert asked_of(route_of(kind, "some-model")).prefill == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": {"effort": "high"}},
        {"items": [*ASKED, message("assistant", "Well,")]},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
    ],
    ids=["thinking", "behind the assistant", "with a form"],
)
def test_it_is_left_out_where_it_would_be_refused(fields):
    assert asked_of(route_of("anthropic", OLD), **fields).prefill == ""


def test_deepseek_takes_it_at_its_beta_address_alone():
    route = route_of("deepseek", "deepseek-chat")
    url = route.endpoint.url(asked_of(route))
    assert url == "https://api.deepseek.com/beta/chat/completions"
    usual = Request(model=route.model, items=ASKED)
    assert route.endpoint.url(usual).startswith("https://api.deepseek.com/v1/")
    elsewhere = route_of("deepseek", "deepseek-chat", "https://proxy.example/v1")
    assert asked_of(elsewhere).prefill == ""


def test_who_refuses_it_is_asked_from_the_start():
    route = route_of("vllm", "qwen3")
    request = asked_of(route)
    refused = BadRequest("no", detail="prefill is incompatible with thinking")
    repair = repairs.find(refused, request, route.endpoint.codec)
    assert repair is not None
    assert repair.change(request).prefill == ""
