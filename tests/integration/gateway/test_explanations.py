"""`parley.explain`: each API's answers say what became of the request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.gateway.programs import FAST, Gateway

EXPLAIN = {"parley": {"explain": True}}
EVERY_API = pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/chat/completions", {}),
        ("/messages", {"max_tokens": 4000}),
        ("/responses", {"store": False}),
        ("/responses", {"store": True}),
    ],
)


def body_of(path: str, text: str, fields: dict[str, Any]) -> dict[str, Any]:
    content = (
        {"input": text}
        if path == "/responses"
        else {"messages": [{"role": "user", "content": text}]}
    )
    return {"model": FAST, **content, **fields, **EXPLAIN}


def explanation_of(payload: dict[str, Any]) -> dict[str, Any]:
    found = payload.get("response", payload)["parley"]["explanation"]
    assert isinstance(found, dict)
    return found


def streamed(gateway: Gateway, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    frames = [frame.data for frame in gateway.stream(path, body)]
    return [json.loads(data) for data in frames if b"[DONE]" not in data]


@EVERY_API
def test_a_whole_answer_is_explained(
    gateway: Gateway, path: str, fields: dict[str, Any]
):
    answer = gateway.post(path, body_of(path, "Hello", fields))
    found = explanation_of(answer.json())
    assert found["request_id"] == answer.headers["x-request-id"]
    assert found["model"] == FAST
    (attempt,) = found["attempts"]
    assert (attempt["status"], attempt["http_status"]) == ("completed", 200)
    assert attempt["output_tokens"] > 0
    assert found["route"] == {"provider": attempt["provider"], "model": FAST}
    assert found["timing"]["total_ms"] >= attempt["total_ms"]


@EVERY_API
def test_the_end_of_a_stream_is_explained(
    gateway: Gateway, path: str, fields: dict[str, Any]
):
    events = streamed(gateway, path, body_of(path, "Hello", fields))
    (attempt,) = explanation_of(events[-1])["attempts"]
    assert attempt["status"] == "completed"
    assert not any("parley" in event for event in events[:-1])


@EVERY_API
@pytest.mark.parametrize("stream", [False, True])
def test_a_refusal_is_explained(
    gateway: Gateway, path: str, fields: dict[str, Any], stream: bool
):
    body = {**body_of(path, "/fail 429", fields), "stream": stream}
    answer = gateway.post(path, body)
    assert answer.status_code == 429
    found = explanation_of(answer.json())
    assert 1 <= len(found["attempts"]) <= 3  # the key rests
    assert {attempt["error"] for attempt in found["attempts"]} == {"E_LLM_RATE_LIMIT"}
    assert answer.json()["error"]["host"]["status"] == 429


@EVERY_API
def test_without_the_wish_nothing_is_explained(
    gateway: Gateway, path: str, fields: dict[str, Any]
):
    body = {**body_of(path, "Hello", fields)}
    del body["parley"]
    assert "parley" not in gateway.post(path, body).json()


def test_a_failure_in_the_middle_of_a_stream_is_explained(gateway: Gateway):
    text = "/fail stream Count from 1 to 40"
    for path, fields in (
        ("/chat/completions", {}),
        ("/messages", {"max_tokens": 4000}),
    ):
        events = streamed(gateway, path, body_of(path, text, fields))
        assert any("error" in event for event in events)
        assert explanation_of(events[-1])["attempts"][-1]["status"] == "failed"


def test_a_stored_response_is_explained_later(gateway: Gateway):
    answer = gateway.respond("Hello", **EXPLAIN)
    later = gateway.get(f"/responses/{answer['id']}").json()
    assert explanation_of(later) == explanation_of(answer)


def test_losses_are_those_of_the_header(gateway: Gateway):
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    body = body_of("/messages", "Hello", {"max_tokens": 9, "tools": tools})
    answer = gateway.post("/messages", body)
    losses = explanation_of(answer.json())["losses"]
    assert ", ".join(losses) == answer.headers["x-parley-degraded"]
