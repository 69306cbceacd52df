"""Details of answers and requests on which the vendors' own clients rely."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from asgiref.sync import sync_to_async

from conversations.models import AccessToken, Preset
from llm.models import LanguageModel
from tests.conversations.gateway.forwarding.hosts import (
    Client,
    Host,
    add_model,
    canned_reply,
)

pytestmark = pytest.mark.django_db(transaction=True)

QUESTION = [{"role": "user", "content": "Hi"}]


async def test_anthropic_s_clients_find_the_request_s_id(client: Client):
    with Host(lambda received: canned_reply("messages", received)) as host:
        model = await add_model("anthropic", "anthropic", host.url, "m")
        body = {"model": model, "max_tokens": 5, "messages": QUESTION}
        for sent in (body, {**body, "model": "missing"}):
            answer = await client.post("/v1/messages", sent)
            assert answer.headers["request-id"] == answer.headers["x-request-id"]


async def test_a_line_for_each_beta_reaches_the_host(client: Client):
    """As Anthropic's client for Go sends them."""
    with Host(lambda received: canned_reply("messages", received)) as host:
        model = await add_model("anthropic", "anthropic", host.url, "m")
        body = {"model": model, "max_tokens": 5, "messages": QUESTION}
        lines = ("anthropic-beta", "files-api"), ("anthropic-beta", "skills")
        answer = await client.post("/v1/messages", body, {}, *lines)
        assert answer.status == 200, answer.body
    (received,) = host.received
    assert received.headers["anthropic-beta"] == "files-api, skills"


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 2), ("logprobs", True), ("top_logprobs", 3), ("modalities", ["audio"])],
)
async def test_what_an_explained_answer_would_lack_is_refused(
    client: Client, name: str, value: object
):
    """Its answer is written anew, with one choice of text."""
    with Host(lambda received: canned_reply("chat", received)) as host:
        model = await add_model("openai_compatible", "openai_chat", host.url, "m")
        body = {"model": model, "messages": QUESTION, name: value}
        path = "/v1/chat/completions"
        explained = await client.post(path, {**body, "parley": {"explain": True}})
        assert (await client.post(path, body)).status == 200
    assert explained.status == 400
    assert explained.json()["error"]["param"].startswith(name)
    assert len(host.received) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_an_overloaded_host_has_anthropic_s_status(client: Client, stream: bool):
    error = {"type": "overloaded_error", "message": "Overloaded"}
    refusal = json.dumps({"type": "error", "error": error}).encode()
    with Host(lambda received: (529, "application/json", refusal)) as host:
        model = await add_model("anthropic", "anthropic", host.url, "m")
        await LanguageModel.objects.aupdate(options={"retry": {"attempts": 1}})
        body = {"model": model, "max_tokens": 5, "messages": QUESTION}
        answer = await client.post("/v1/messages", {**body, "stream": stream})
        other = await client.post(
            "/v1/chat/completions", {"model": model, "messages": QUESTION}
        )
    assert answer.status == 529
    assert answer.json()["error"]["type"] == "overloaded_error"
    assert other.status == 503


async def test_an_explained_answer_states_what_was_written_to_the_cache(client: Client):
    with Host(lambda received: canned_reply("messages", received)) as host:
        model = await add_model("anthropic", "anthropic", host.url, "m")
        body = {"model": model, "max_tokens": 5, "messages": QUESTION}
        body = {**body, "parley": {"explain": True}}
        answer = await client.post("/v1/messages", body)
    usage = answer.json()["usage"]
    assert usage["cache_creation_input_tokens"] == 40
    assert usage["cache_read_input_tokens"] == 50
    assert usage["input_tokens"] == 3


async def test_an_answer_that_is_repeated_has_the_limits_of_its_own_request(
    client: Client,
):
    await AccessToken.objects.aupdate(requests_per_minute=60)
    with Host(lambda received: canned_reply("messages", received)) as host:
        model = await add_model("anthropic", "anthropic", host.url, "m")
        body = {"model": model, "max_tokens": 5, "messages": QUESTION}
        key = {"idempotency-key": "one"}
        first, second = [await client.post("/v1/messages", body, key) for _ in range(2)]
    assert first.body == second.body
    left = "anthropic-ratelimit-requests-remaining"
    assert int(second.headers[left]) == int(first.headers[left]) - 1


async def test_a_preset_with_a_limit_of_cost_summarises_nothing(client: Client):
    with Host(lambda received: canned_reply("responses", received)) as host:
        await add_model("openai", "openai_responses", host.url, "m")
        await add_preset()
        body = {"model": "preset/frugal", "input": "Hi"}
        answer = await client.post("/v1/responses/compact", body)
    assert answer.status == 400
    assert "stored responses" in answer.json()["error"]["message"]
    assert host.received == []


async def test_a_summary_has_the_request_s_instructions_and_tier(client: Client):
    with Host(lambda received: canned_reply("responses", received)) as host:
        await add_model("openai", "openai_responses", host.url, "m")
        wanted = {"instructions": "In French.", "service_tier": "flex"}
        body = {"model": "m", "input": "Hi", **wanted}
        await client.post("/v1/responses/compact", body)
    [sent] = host.received
    assert {name: sent.body[name] for name in wanted} == wanted


@sync_to_async
def add_preset() -> None:
    Preset.objects.create(
        name="frugal",
        language_model=LanguageModel.objects.get(),
        max_cost=Decimal(1),
    )
