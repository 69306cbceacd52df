"""`Idempotency-Key`: the same request gets the same answer, and is charged once."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.gateway.programs import FAST, Gateway, events_of

MESSAGES = [{"role": "user", "content": "/random"}]
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"model": FAST, "messages": MESSAGES},
    "/messages": {"model": FAST, "messages": MESSAGES, "max_tokens": 500},
    "/responses": {"model": FAST, "input": "Hello"},
    "/responses/input_tokens": {"model": FAST, "input": "Hello"},
    "/messages/count_tokens": {"model": FAST, "messages": MESSAGES},
    "/responses/compact": {"model": FAST, "input": "Hello"},
}
STREAMS = pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/chat/completions", {}),
        ("/messages", {}),
        ("/responses", {"store": True}),
        ("/responses", {"store": False}),
    ],
)
EVERY_POST = pytest.mark.parametrize("path", BODIES)


def send(gateway: Gateway, path: str, key: str, **fields: Any) -> httpx.Response:
    body = {**BODIES[path], **fields}
    return gateway.post(path, body, **{"Idempotency-Key": key})


@EVERY_POST
def test_a_repetition_gets_the_same_answer(gateway: Gateway, path: str):
    key = uuid4().hex
    first, again = send(gateway, path, key), send(gateway, path, key)
    assert first.status_code == 200
    assert "idempotent-replayed" not in first.headers
    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    called = gateway.rows(
        f"ModelCall.objects.filter(our_request_id={again.headers['x-request-id']!r})"
        ".count()"
    )
    assert called == "0"


@STREAMS
def test_a_stream_is_repeated_byte_for_byte(
    gateway: Gateway, path: str, fields: dict[str, Any]
):
    key = uuid4().hex
    first = send(gateway, path, key, stream=True, **fields)
    again = send(gateway, path, key, stream=True, **fields)
    assert first.headers["content-type"].startswith("text/event-stream")
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.content == first.content


@EVERY_POST
def test_a_key_is_for_one_request(gateway: Gateway, path: str):
    key = uuid4().hex
    send(gateway, path, key)
    other = send(gateway, path, key, user="somebody")
    assert other.status_code == 409
    assert other.headers["x-should-retry"] == "false"


def test_a_stored_response_is_opened_once(gateway: Gateway):
    key = uuid4().hex
    ids = {send(gateway, "/responses", key).json()["id"] for _ in range(3)}
    assert len(ids) == 1


def test_what_failed_may_be_sent_again(gateway: Gateway):
    key = uuid4().hex
    for _ in range(2):
        answer = send(gateway, "/chat/completions", key, model="no-such-model")
        assert answer.status_code == 404
    assert send(gateway, "/chat/completions", key).status_code == 200


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_an_unusable_key_is_refused(gateway: Gateway, key: str):
    assert send(gateway, "/chat/completions", key).status_code == 400


def spoken(path: str, text: str) -> dict[str, Any]:
    """The field that says `text` to the model."""
    if path == "/responses":
        return {"input": text}
    return {"messages": [{"role": "user", "content": text}]}


@STREAMS
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_failed_on_its_way_is_not_repeated(
    gateway: Gateway, path: str, fields: dict[str, Any], stream: bool
):
    key = uuid4().hex
    said = spoken(path, "/fail stream")
    for _ in range(2):
        answer = send(gateway, path, key, stream=stream, **said, **fields)
        assert "idempotent-replayed" not in answer.headers


@STREAMS
def test_a_key_is_in_use_until_its_answer_is_whole(
    gateway: Gateway, path: str, fields: dict[str, Any]
):
    key, said = uuid4().hex, spoken(path, "/slow 300")
    body = {**BODIES[path], **said, **fields, "stream": True}
    headers = {"Idempotency-Key": key}
    with (
        gateway.http() as client,
        client.stream("POST", path, json=body, headers=headers) as first,
    ):
        assert first.status_code == 200
        again = gateway.post(path, body, **headers)
        assert again.status_code == 409
        assert again.headers["x-should-retry"] == "true"
        assert again.headers["retry-after"] == "1"
        other = gateway.post(path, {**body, "user": "somebody"}, **headers)
        assert other.status_code == 409
        assert other.headers["x-should-retry"] == "false"


def test_a_response_is_cancelled_once(gateway: Gateway):
    body = {"model": FAST, "input": "/slow 300", "background": True}
    id = gateway.post("/responses", body).json()["id"]
    headers = {"Idempotency-Key": uuid4().hex}
    first = gateway.post(f"/responses/{id}/cancel", {}, **headers)
    again = gateway.post(f"/responses/{id}/cancel", {}, **headers)
    assert (first.status_code, first.json()["status"]) == (200, "cancelled")
    assert again.content == first.content
    assert again.headers["idempotent-replayed"] == "true"


# Over a WebSocket


async def ask(socket: Any, key: Any, text: str, **fields: Any) -> list[dict[str, Any]]:
    body = {"type": "response.create", "model": FAST, "input": text, **fields}
    await socket.send(json.dumps({**body, "idempotency_key": key}))
    return [event async for event in events_of(socket)]


@pytest.mark.parametrize("store", [False, True])
async def test_a_message_gets_the_same_events_on_another_socket(
    gateway: Gateway, store: bool
):
    key, answers = uuid4().hex, []
    for _ in range(2):
        async with gateway.socket() as socket:
            answers.append(await ask(socket, key, "/random", store=store))
    assert answers[0][-1]["type"] == "response.completed"
    assert answers[1] == answers[0]


async def test_a_message_of_another_text_needs_another_key(gateway: Gateway):
    key = uuid4().hex
    async with gateway.socket() as socket:
        await ask(socket, key, "Hello")
        [refusal] = await ask(socket, key, "Good bye")
        assert refusal["status"] == 409
        assert refusal["error"]["code"] == "idempotency_key_reused"
        [refusal] = await ask(socket, 5, "Hello")
        assert refusal["error"]["code"] == "invalid_idempotency_key"


async def test_a_message_whose_answer_failed_may_be_sent_again(gateway: Gateway):
    key = uuid4().hex
    async with gateway.socket() as socket:
        first = await ask(socket, key, "/fail stream", store=False)
        again = await ask(socket, key, "/fail stream", store=False)
    assert first[-1]["type"] == again[-1]["type"] == "response.failed"
    assert first[0]["response"]["id"] != again[0]["response"]["id"]
