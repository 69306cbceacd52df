"""Prefilled answers: which models receive the beginning, and how."""

from __future__ import annotations

from typing import Any

import pytest

from llm.adaptation import request_repairs
from llm.adaptation.adapt import Adaptation
from llm.capabilities import capabilities_of
from llm.errors import BadRequest
from llm.http.request import url_of
from llm.provider import Endpoint, Route
from llm.providers import all_providers
from llm.wire.items import message, user_message
from llm.wire.request import Request

BEGUN = "It was a dark night"
QUESTION = [user_message("Tell me a story")]
OLD, NEW = "claude-sonnet-4-5", "claude-sonnet-4-6"


def route_of(kind: str, model: str, base_url: str = "") -> Route:
    provider = all_providers()[kind]
    codec = provider.codec()
    endpoint = Endpoint(provider=provider, codec=codec, base_url=base_url)
    can = capabilities_of(kind, model, wire=codec.name)
    return Route(endpoint=endpoint, model=model, name=model, capabilities=can)


def adapted_request(route: Route, **fields: Any) -> Request:
    options = {"model": route.model, "items": QUESTION, "prefill": BEGUN, **fields}
    return Adaptation(Request(**options), route).request


@pytest.mark.parametrize(
    ("kind", "model", "expected"),
    [
        ("mistral", "mistral-large-latest", {"prefix": True}),
        ("deepseek", "deepseek-chat", {"prefix": True}),
        ("vllm", "qwen3", {}),
    ],
)
def test_a_beginning_is_the_last_message(kind, model, expected):
    route = route_of(kind, model)
    request = adapted_request(route)
    body = route.endpoint.codec.encode(request)
    assert body["messages"][-1] == {"role": "assistant", "content": BEGUN, **expected}
    is_marked = kind == "vllm"
    assert (body.get("continue_final_message") is True) is is_marked
    assert (body.get("add_generation_prompt") is False) is is_marked


def test_an_older_claude_is_sent_it_and_a_newer_one_is_not():
    route = route_of("anthropic", OLD)
    body = route.endpoint.codec.encode(adapted_request(route))
    begun = [{"type": "text", "text": BEGUN}]
    assert body["messages"][-1] == {"role": "assistant", "content": begun}
    assert adapted_request(route_of("anthropic", NEW)).prefill == ""
    assert adapted_request(route_of("anthropic", "claude-opus-5-5")).prefill == ""


@pytest.mark.parametrize("kind", ["openai", "groq", "gemini", "ollama", "xai"])
def test_other_models_do_not_receive_the_prefill(kind):
    assert adapted_request(route_of(kind, "some-model")).prefill == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": {"effort": "high"}},
        {"items": [*QUESTION, message("assistant", "Well,")]},
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": {}}}},
    ],
    ids=["thinking", "behind the assistant", "with a form"],
)
def test_it_is_left_out_where_it_would_be_refused(fields):
    assert adapted_request(route_of("anthropic", OLD), **fields).prefill == ""


def test_deepseek_takes_it_at_its_beta_address_alone():
    route = route_of("deepseek", "deepseek-chat")
    url = url_of(route.endpoint, adapted_request(route))
    assert url == "https://api.deepseek.com/beta/chat/completions"
    usual = Request(model=route.model, items=QUESTION)
    assert url_of(route.endpoint, usual).startswith("https://api.deepseek.com/v1/")
    elsewhere = route_of("deepseek", "deepseek-chat", "https://proxy.example/v1")
    assert adapted_request(elsewhere).prefill == ""


def test_a_model_that_refuses_the_prefill_starts_again():
    route = route_of("vllm", "qwen3")
    request = adapted_request(route)
    refused = BadRequest("no", detail="prefill is incompatible with thinking")
    repair = request_repairs.find(refused, request, route.endpoint.codec)
    assert repair is not None
    assert repair.change(request).prefill == ""
