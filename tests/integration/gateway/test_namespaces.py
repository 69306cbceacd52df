"""Codex's functions in a namespace, at a host that has none: `captured/` has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.gateway.programs import Gateway, text_of

CODEX = Path(__file__).parent / "captured" / "codex_tools.json"
CALLED = ("multi_agent_v1", "wait_agent")
_ROWS = """
from llm.demo.key import demo_key
from llm.models import ApiKey, LanguageModel, Provider
chat = Provider.objects.create(name="flat-chat", kind="demo", codec="openai_chat")
ApiKey.objects.create(provider=chat, secret=demo_key())
LanguageModel.objects.create(provider=chat, name="demo-fast")
"""


@pytest.fixture(scope="module")
def model(gateway: Gateway) -> Iterator[str]:
    """At a host of Chat Completions."""
    gateway.server.manage("shell", "-v0", "-c", _ROWS)
    yield "flat-chat/demo-fast"
    gateway.rows("LanguageModel.objects.filter(provider__name='flat-chat').delete()")


ALLOWED = {
    "type": "allowed_tools",
    "mode": "auto",
    "tools": [{"type": "namespace", "name": CALLED[0]}],
}


@pytest.mark.parametrize(
    ("store", "choice"), [(True, ALLOWED), (False, ALLOWED), (False, "auto")]
)
def test_a_function_is_called_in_its_namespace(
    gateway: Gateway, model: str, store: bool, choice: object
):
    body = {**json.loads(CODEX.read_bytes()), "model": model, "store": store}
    body["tool_choice"] = choice
    ask = {"role": "user", "content": f"/tool {'__'.join(CALLED)} {{}}"}
    body |= {"stream": False, "input": [*body["input"], ask]}
    answer = gateway.post("/responses", body)
    assert answer.status_code == 200, answer.text
    output = answer.json()["output"]
    [call] = [each for each in output if "name" in each]
    assert (call["namespace"], call["name"]) == CALLED
    assert "namespace" not in answer.headers.get("x-parley-degraded", "")
    streamed = gateway.post("/responses", {**body, "stream": True})
    assert streamed.text.count('"namespace":"multi_agent_v1"') == 3

    result = {"type": "function_call_output", "call_id": call["call_id"]}
    result["output"] = "It waits for 87 seconds."
    if store:
        stored = gateway.get(f"/responses/{answer.json()['id']}")
        assert stored.json()["output"] == output
        body |= {"previous_response_id": answer.json()["id"], "input": [result]}
    else:
        body["input"] += [*output, result]
    continued = gateway.post("/responses", body)
    assert continued.status_code == 200, continued.text
    assert "87" in text_of(continued.json())


FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@pytest.mark.parametrize("name", ["demo/demo-fast", "flat-chat/demo-fast"])
def test_a_search_of_anthropic_in_another_api_fails_no_request(
    gateway: Gateway, model: str, name: str
):
    chat = [SEARCH, {"type": "function", "function": FUNCTION}]
    body = {"model": name, "messages": [{"role": "user", "content": "Hi"}]}
    answers = [gateway.post("/chat/completions", {**body, "tools": chat})]
    flat = [SEARCH, {"type": "function", **FUNCTION}]
    answers.append(
        gateway.post("/responses", {"model": name, "input": "Hi", "tools": flat})
    )
    for answer in answers:
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("store", [True, False])
def test_a_whole_float_that_no_number_equals_is_refused_by_its_name(
    gateway: Gateway, store: bool
):
    body = {"model": "demo/demo-fast", "input": "Hi", "store": store}
    answer = gateway.post("/responses", {**body, "max_output_tokens": 1e300})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "max_output_tokens"
