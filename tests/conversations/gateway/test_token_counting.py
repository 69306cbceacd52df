"""Programs that count tokens get the host's own number where it counts for nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from llm.models import LanguageModel, ModelCall
from tests.conversations.gateway.forwarding.hosts import (
    KEY,
    Client,
    Host,
    Received,
    Reply,
    add_model,
)

pytestmark = pytest.mark.django_db(transaction=True)

#: Kind and wire format of a host, its path, and the name of the number in its answer.
HOSTS = [
    ("anthropic", "anthropic", "/v1/messages/count_tokens", "input_tokens"),
    ("openai", "openai_responses", "/responses/input_tokens", "input_tokens"),
    ("gemini", "gemini", "/models/m:countTokens", "totalTokens"),
]
TEXT = "The harvest of the year"
TOOL = {"type": "object", "properties": {"place": {"type": "string"}}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages/count_tokens": {
        "system": "Be brief.",
        "messages": [{"role": "user", "content": TEXT}],
        "tools": [{"name": "look", "input_schema": TOOL}],
    },
    "/v1/responses/input_tokens": {
        "instructions": "Be brief.",
        "input": TEXT,
        "tools": [{"type": "function", "name": "look", "parameters": TOOL}],
    },
}


def counting(field: str, value: Any = 4711, status: int = 200):
    def reply(received: Received) -> Reply:
        return status, "application/json", json.dumps({field: value}).encode()

    return reply


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = await Client().open()
    yield client
    await client.close()


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(("kind", "codec", "host_path", "field"), HOSTS)
async def test_the_host_counts_the_whole_prompt(
    client, kind, codec, host_path, field, path
):
    with Host(counting(field)) as host:
        model = await add_model(kind, codec, host.url, "m")
        answer = await client.post(path, {**BODIES[path], "model": model})
    assert answer.status == 200, answer.body
    assert answer.json()["input_tokens"] == 4711
    assert answer.headers["x-parley-token-count"] == "host"
    (received,) = host.received
    assert received.path == host_path
    assert KEY in " ".join(received.headers.values())
    sent = json.dumps(received.body)
    assert all(each in sent for each in (TEXT, "Be brief.", "look", "place"))
    for refused in ("max_tokens", '"stream"', "max_output_tokens", '"store"'):
        assert refused not in sent
    assert not await ModelCall.objects.aexists()  # it costs nothing


@pytest.mark.parametrize(
    "reply",
    [
        counting("error", status=404),
        counting("error", status=429),
        counting("other"),
        counting("input_tokens", "many"),
        counting("input_tokens", -1),
        lambda received: (200, "text/html", b"<html>"),
    ],
)
async def test_what_a_host_does_not_count_is_estimated(client, reply):
    path = "/v1/messages/count_tokens"
    with Host(reply) as host:
        model = await add_model("anthropic", "anthropic", host.url, "m")
        answer = await client.post(path, {**BODIES[path], "model": model})
    assert answer.status == 200, answer.body
    assert 5 < answer.json()["input_tokens"] < 200
    assert answer.headers["x-parley-token-count"] == "estimate"


async def test_a_host_that_is_away_or_has_no_such_endpoint_is_not_waited_for(client):
    path = "/v1/messages/count_tokens"
    with Host(counting("input_tokens")) as host:
        gone = await add_model("anthropic", "anthropic", "http://127.0.0.1:9", "m")
        other = await add_model("mistral", "openai_chat", host.url, "m")
        for model in (gone, other):
            answer = await client.post(path, {**BODIES[path], "model": model})
            assert answer.headers["x-parley-token-count"] == "estimate"
    assert host.received == []


async def test_a_model_that_the_user_may_not_use_is_not_asked(client):
    path = "/v1/responses/input_tokens"
    with Host(counting("input_tokens")) as host:
        model = await add_model("openai", "openai_responses", host.url, "m")
        await LanguageModel.objects.aupdate(enabled=False)
        answer = await client.post(path, {**BODIES[path], "model": model})
    assert answer.status == 404
    assert host.received == []
    assert await sync_to_async(User.objects.count)() == 1


async def test_the_host_counts_what_only_it_knows(client):
    """As it answers the same body: newer blocks and the client's beta features."""
    path = "/v1/messages/count_tokens"
    blocks = [
        {"type": "text", "text": TEXT},
        {"type": "container_upload", "file_id": "file_1"},
        {"type": "newest", "words": "of tomorrow"},
    ]
    body = {
        "messages": [{"role": "user", "content": blocks}],
        "context_management": {"edits": []},
        "betas": ["files-api-2025-04-14"],
        "max_tokens": 5,
    }
    with Host(counting("input_tokens")) as host:
        model = await add_model("anthropic", "anthropic", host.url, "m")
        betas = {"anthropic-beta": "context-management-2025-06-27"}
        answer = await client.post(path, {**body, "model": model}, betas)
        assert answer.status == 200, answer.body
    (received,) = host.received
    assert received.body == {
        "model": "m",
        "messages": body["messages"],
        "context_management": {"edits": []},
    }
    sent = received.headers["anthropic-beta"].split(",")
    assert sent == ["context-management-2025-06-27", "files-api-2025-04-14"]


async def test_what_only_the_host_knows_is_estimated_if_it_does_not_count(client):
    path = "/v1/messages/count_tokens"
    blocks = [{"type": "newest", "words": "of tomorrow " * 100}]
    with Host(counting("error", status=404)) as host:
        model = await add_model("anthropic", "anthropic", host.url, "m")
        messages = [{"role": "user", "content": blocks}]
        answer = await client.post(path, {"model": model, "messages": messages})
    assert answer.headers["x-parley-token-count"] == "estimate"
    assert 200 < answer.json()["input_tokens"] < 600


async def test_the_history_that_the_input_continues_counts(client):
    path = "/v1/responses/input_tokens"
    with Host(counting("input_tokens")) as host:
        model = await add_model("openai", "openai_responses", host.url, "m")
        body = {"model": model, "input": "Go on"}
        opened = await client.post(
            "/v1/responses", {"model": model, "input": TEXT, "background": True}
        )
        response = opened.json()
        conversation = response["conversation"]
        for named in (
            {"previous_response_id": response["id"]},
            {"conversation": conversation},
            {"conversation": conversation["id"]},
        ):
            answer = await client.post(path, {**body, **named})
            assert answer.status == 200, answer.body
            sent = host.received.pop().body
            texts = json.dumps(sent["input"])
            assert texts.index(TEXT) < texts.index("Go on")
            assert not {"conversation", "previous_response_id"} & sent.keys()
        gone = await client.post(path, {**body, "conversation": "conv_x"})
        assert (gone.status, gone.json()["error"]["param"]) == (404, "conversation")
        both = {"previous_response_id": response["id"], "conversation": conversation}
        assert (await client.post(path, {**body, **both})).status == 400
    assert host.received == []
