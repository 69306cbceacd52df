"""Presets as models: instructions, tools and context of `preset/<name>`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.gateway.programs import FAST, Gateway

NAME = "preset/support"
_ROWS = """
from conversations.models import ContextSource, Preset
from conversations.models.preset import PresetSource
from django.contrib.auth.models import Group
from llm.models import ApiKey, LanguageModel, Provider
from tools.models import Tool
from llm.demo.key import demo_key
host = Provider.objects.create(name="watched", kind="demo", keeps_exchanges=True)
ApiKey.objects.create(provider=host, secret=demo_key())
model = LanguageModel.objects.create(provider=host, name="demo")
preset = Preset.objects.create(
    name="support", label="Support", instructions="You answer for PARSNIP.",
    language_model=model, options={"max_output_tokens": 777}, max_tool_calls=3,
)
preset.tools.add(Tool.objects.get(name="calculator"))
source = ContextSource.objects.create(name="hours", title="Hours", text="Open at NINE.")
PresetSource.objects.create(preset=preset, source=source)
dear = Preset.objects.create(name="dear", language_model=model, max_cost=1)
secret = Preset.objects.create(name="secret", language_model=model)
secret.groups.add(Group.objects.create(name="few"))
"""
EVERY_API: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "messages": (
        "/messages",
        {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 500},
    ),
    "responses": ("/responses", {"input": "Hi", "store": False}),
    "stored responses": ("/responses", {"input": "Hi", "store": True}),
}


@pytest.fixture(scope="module")
def presets(gateway: Gateway) -> Iterator[Gateway]:
    gateway.server.manage("shell", "-v", "0", "-c", _ROWS)
    while NAME not in gateway.get("/models").text:
        pass  # the server's look-ups last five seconds
    yield gateway
    # Other modules name the model of the demo without its provider.
    gateway.rows(
        "LanguageModel.objects.filter(provider__name='watched').update(enabled=False)"
    )


def sent_of(gateway: Gateway, answer: httpx.Response) -> str:
    """What the host was sent."""
    request_id = answer.headers["x-request-id"]
    found = ""
    while not found:
        found = gateway.rows(
            "[each.read()['request'] for each in ModelExchange.objects.filter("
            f"call__our_request_id={request_id!r})] or ''"
        )
    return found


@pytest.mark.parametrize("api", EVERY_API)
def test_a_preset_answers_with_all_that_it_has(presets: Gateway, api: str):
    path, fields = EVERY_API[api]
    answer = presets.post(path, {"model": NAME, **fields})
    assert answer.status_code == 200, answer.text
    assert answer.json()["model"] == NAME
    sent = sent_of(presets, answer)
    for part in ("You answer for PARSNIP.", "Open at NINE.", "calculator"):
        assert part in sent
    if api != "messages":  # which always names its own number of tokens
        assert "777" in sent


def test_the_request_s_own_instructions_follow_those_of_the_preset(presets: Gateway):
    for store in (False, True):
        body = {
            "model": NAME,
            "input": "Hi",
            "instructions": "In RHYME.",
            "store": store,
        }
        sent = sent_of(presets, presets.post("/responses", body))
        assert 0 < sent.index("PARSNIP") < sent.index("In RHYME.")


def test_presets_are_among_the_models(presets: Gateway):
    listed = {row["id"]: row for row in presets.get("/models").json()["data"]}
    assert listed[NAME]["display_name"] == "Support"
    assert presets.get(f"/models/{NAME}").json()["id"] == NAME
    assert (
        presets.post("/responses", {"model": "preset/none", "input": "Hi"}).json()[
            "error"
        ]["code"]
        == "model_not_found"
    )


def test_a_stored_response_is_a_conversation_with_the_preset(presets: Gateway):
    first = presets.respond("Hi", model=NAME)
    pk = first["conversation"]["id"]
    name = presets.rows(f"Conversation.objects.get(pk={pk!r}).preset.name")
    assert name == "support"
    again = presets.respond("On", model=NAME, previous_response_id=first["id"])
    assert again["status"] == "completed"
    plain = presets.respond("Hi", model=FAST)
    other = {"model": NAME, "input": "On", "previous_response_id": plain["id"]}
    assert presets.post("/responses", other).status_code == 400


def test_a_preset_with_a_limit_of_cost_needs_a_stored_response(presets: Gateway):
    body = {"model": "preset/dear", "input": "Hi"}
    assert presets.post("/responses", {**body, "store": False}).status_code == 400
