"""Captured requests of real clients: `captured/` contains their bodies.

They come from Vercel's AI SDK 6, Claude Code 2.1 and codex 0.169 with a tool of theirs;
long texts are cut, and the model is set here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llm.wire.sanitize import sanitize_text
from tests.integration.gateway.programs import FAST, WEATHER, Gateway, text_of

CAPTURED = Path(__file__).parent / "captured"
SLOW = "demo-slow"
SAY = "Reply with exactly: hi"
LOOK = {"type": "function", "name": "get_weather", "parameters": WEATHER}
OTHER_USER = """
from django.contrib.auth.models import User
User.objects.get_or_create(username="somebody")
"""
LIMITED = """
from llm.models import LanguageModel
row = LanguageModel.objects.get(name="demo-slow")
row.max_output_tokens, row.capabilities = {limit}, {capabilities}
row.save()
"""


def captured(name: str, **changed: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((CAPTURED / f"{name}.json").read_bytes())
    return {**body, "model": FAST, "stream": False, **changed}


def named(id: str) -> dict[str, Any]:
    return {"type": "item_reference", "id": id}


# Tools with fields of one vendor


def test_a_claude_tool_with_extra_fields_is_offered_to_other_models(
    gateway: Gateway,
):
    body = captured("vercel_messages_first_step")
    assert body["tools"][0]["eager_input_streaming"] is True
    answer = gateway.post("/messages", body)
    assert answer.status_code == 200, answer.text
    assert [block["type"] for block in answer.json()["content"]][-1] == "tool_use"
    assert answer.json()["stop_reason"] == "tool_use"


def test_the_output_of_a_clients_tool_reaches_the_model(gateway: Gateway):
    answer = gateway.post("/messages", captured("vercel_messages_second_step"))
    assert "18C" in answer.text


@pytest.mark.parametrize(
    ("path", "name", "tool"),
    [
        ("/messages", "claude_code_tools", "Bash"),
        ("/responses", "codex_tools", "exec_command"),
    ],
)
def test_an_agent_s_second_step_is_answered_with_its_tools_at_hand(
    gateway: Gateway, path: str, name: str, tool: str
):
    body = captured(name)
    again = f"/tool {tool} {{}}"
    if path == "/messages":
        body["messages"].append({"role": "user", "content": again})
    else:
        body["input"].append({"role": "user", "content": again})
    answer = gateway.post(path, body)
    assert answer.status_code == 200, answer.text
    called = answer.json().get("content") or answer.json()["output"]
    assert [each["name"] for each in called if "name" in each] == [tool]


# Options that a client sends to every model


@pytest.fixture
def limited(gateway: Gateway) -> Iterator[str]:
    """A model that writes little and does not reason."""
    config = LIMITED.format(limit=4096, capabilities={"reasoning": False})
    gateway.server.manage("shell", "-c", config)
    yield f"demo/{SLOW}"
    gateway.server.manage("shell", "-c", LIMITED.format(limit=None, capabilities={}))


def test_a_client_of_another_api_may_request_more_than_a_model_supports(
    gateway: Gateway, limited: str
):
    body = captured("claude_code_tools", model=limited)
    assert (body["max_tokens"], body["output_config"]) == (32000, {"effort": "high"})
    answer = gateway.post("/messages", body)
    assert answer.status_code == 200, answer.text
    degraded = answer.headers["x-parley-degraded"]
    dropped = "context_management, cache_control, reasoning.effort"
    assert degraded == f"{dropped}, max_output_tokens (32000 -> 4096)"


def test_a_client_of_the_model_s_own_api_is_refused_it(gateway: Gateway, limited: str):
    body = {"model": limited, "input": SAY, "max_output_tokens": 32000}
    answer = gateway.post("/responses", {**body, "store": False})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "max_output_tokens"


# Items that are named


def first_step(gateway: Gateway, **fields: Any) -> list[dict[str, Any]]:
    question = "What is the weather in Paris?"
    response = gateway.respond(question, tools=[LOOK], **fields)
    output: list[dict[str, Any]] = response["output"]
    return output


@pytest.mark.parametrize("store", [True, False])
def test_stored_items_may_be_referenced_by_id(gateway: Gateway, store: bool):
    items = first_step(gateway)
    call = next(item for item in items if item["type"] == "function_call")
    output = {"type": "function_call_output", "call_id": call["call_id"]}
    response = gateway.respond(
        [
            {"role": "user", "content": "What is the weather in Paris?"},
            *(named(item["id"]) for item in items),
            {**output, "output": "18C"},
        ],
        tools=[LOOK],
        store=store,
    )
    assert "18C" in text_of(response)


def test_the_vercel_sdk_references_items_of_earlier_steps(gateway: Gateway):
    items = first_step(gateway)
    body = captured("vercel_responses_second_step")
    kinds = [item.get("type") for item in body["input"]]
    assert kinds[1] == "item_reference"
    body["input"][1] = named(items[0]["id"])
    answer = gateway.post("/responses", body)
    assert answer.status_code == 200, answer.text
    assert "18C" in text_of(answer.json())


def test_tokens_of_named_items_are_counted(gateway: Gateway):
    items = gateway.respond("Count from 1 to 40")["output"]
    body = {"model": FAST, "input": [named(item["id"]) for item in items]}
    counted = gateway.post("/responses/input_tokens", body)
    assert counted.json()["input_tokens"] > 40


@pytest.mark.parametrize("id", ["msg_0", "msg_" + "0" * 32, "\0"])
def test_an_item_that_there_is_not_is_named_in_the_refusal(gateway: Gateway, id: str):
    answer = gateway.post("/responses", {"model": FAST, "input": [named(id)]})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "item_not_found"
    assert repr(sanitize_text(id)) in answer.json()["error"]["message"]


def test_items_of_other_users_cannot_be_referenced(gateway: Gateway):
    [item] = gateway.respond(SAY)["output"]
    gateway.server.manage("shell", "-c", OTHER_USER)
    other = gateway.server.create_token("somebody")
    answer = gateway.post(
        "/responses",
        {"model": FAST, "input": [named(item["id"])]},
        Authorization=f"Bearer {other}",
    )
    assert answer.status_code == 404, answer.text


def test_unstored_items_cannot_be_referenced(gateway: Gateway):
    [item] = gateway.respond(SAY, store=False)["output"]
    answer = gateway.post("/responses", {"model": FAST, "input": [named(item["id"])]})
    assert answer.status_code == 404


# Errors


def test_a_wrong_token_is_refused_in_the_words_litellm_expects(gateway: Gateway):
    response = gateway.post("/responses", {}, Authorization="Bearer nobody")
    assert response.status_code == 401
    assert "Incorrect API key provided" in response.json()["error"]["message"]
