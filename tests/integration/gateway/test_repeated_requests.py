"""`Idempotency-Key`: the same request gets the same answer, and is charged once."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.integration.gateway.programs import FAST, Gateway

MESSAGES = [{"role": "user", "content": "/random"}]
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"model": FAST, "messages": MESSAGES},
    "/messages": {"model": FAST, "messages": MESSAGES, "max_tokens": 500},
    "/responses": {"model": FAST, "input": "Hello"},
    "/responses/input_tokens": {"model": FAST, "input": "Hello"},
    "/messages/count_tokens": {"model": FAST, "messages": MESSAGES},
    "/responses/compact": {"model": FAST, "input": "Hello"},
}
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


@pytest.mark.parametrize("path", ["/chat/completions", "/messages", "/responses"])
def test_a_stream_is_repeated_byte_for_byte(gateway: Gateway, path: str):
    key = uuid4().hex
    first = send(gateway, path, key, stream=True)
    again = send(gateway, path, key, stream=True)
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
