"""The WebSocket form of `/v1/responses`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests import openresponses
from tests.integration.gateway.programs import FAST, Gateway, events_of, text_of


async def send_request(socket: Any, input: Any, **fields: Any) -> list[dict[str, Any]]:
    body = {"type": "response.create", "model": FAST, "input": input, **fields}
    await socket.send(json.dumps(body))
    return [event async for event in events_of(socket)]


@pytest.mark.parametrize("store", [False, True])
async def test_responses_come_one_after_another(gateway: Gateway, store: bool):
    async with gateway.socket() as socket:
        for text in ("one", "two"):
            events = await send_request(
                socket, f"Reply with exactly: {text}", store=store
            )
            numbers = [event["sequence_number"] for event in events]
            assert numbers == list(range(len(events)))
            for event in events:
                assert openresponses.problems(event) == []
            assert text_of(events[-1]["response"]) == text


@pytest.mark.parametrize("store", [False, True])
async def test_a_socket_continues_from_its_own_responses(gateway: Gateway, store: bool):
    async with gateway.socket() as socket:
        first = (await send_request(socket, "My name is Ada", store=store))[-1][
            "response"
        ]
        then = {"previous_response_id": first["id"], "store": store}
        last = (await send_request(socket, "What is my name?", **then))[-1]["response"]
        assert "Ada" in text_of(last)


async def test_an_unstored_response_is_known_on_its_own_socket_only(gateway: Gateway):
    async with gateway.socket() as socket:
        first = (await send_request(socket, "My name is Ada", store=False))[-1][
            "response"
        ]
    async with gateway.socket() as socket:
        then = {"previous_response_id": first["id"], "store": False}
        [refusal] = await send_request(socket, "What is my name?", **then)
        assert refusal["error"]["code"] == "previous_response_not_found"
        events = await send_request(
            socket, "Reply with exactly: still here", store=False
        )
        assert text_of(events[-1]["response"]) == "still here"


async def test_a_continuation_that_failed_is_forgotten(gateway: Gateway):
    async with gateway.socket() as socket:
        first = (await send_request(socket, "My name is Ada", store=False))[-1][
            "response"
        ]
        then = {"previous_response_id": first["id"], "store": False}
        failed = await send_request(socket, "/fail 500", **then)
        assert [event["type"] for event in failed[-2:]] == ["error", "response.failed"]
        [refusal] = await send_request(socket, "What is my name?", **then)
        assert refusal["error"]["code"] == "previous_response_not_found"


async def test_a_malformed_message_gets_an_error_and_harms_no_other(gateway: Gateway):
    async with gateway.socket() as socket:
        for message in ("{", "[]", '{"type": "turn.create"}'):
            await socket.send(message)
            [refusal] = [event async for event in events_of(socket)]
            assert (refusal["type"], refusal["status"]) == ("error", 400)
        [refusal] = await send_request(socket, "hi", background=True)
        assert refusal["error"]["param"] == "background"
        events = await send_request(socket, "Reply with exactly: fine", store=False)
        assert text_of(events[-1]["response"]) == "fine"


async def test_a_message_of_too_many_values_is_refused_and_not_parsed(
    gateway: Gateway,
):
    async with gateway.socket() as socket:
        [refusal] = await send_request(socket, [[]] * 300_000)
        assert (refusal["type"], refusal["status"]) == ("error", 413)
        assert refusal["error"]["code"] == "request_too_large"
        assert "more than 250,000 values" in refusal["error"]["message"]
        events = await send_request(socket, "Reply with exactly: fine", store=False)
        assert text_of(events[-1]["response"]) == "fine"


async def test_events_repeat_the_stream_id_of_their_message(gateway: Gateway):
    async with gateway.socket() as socket:
        sent = {"store": False, "stream_id": 'lane "x"', "stream": True}
        events = await send_request(socket, "hi", **sent)
        assert {event["stream_id"] for event in events} == {'lane "x"'}
        assert events[-1]["type"] == "response.completed"
        [refusal] = await send_request(socket, "hi", background=True, stream_id="y")
        assert refusal["stream_id"] == "y"
        [refusal] = await send_request(socket, "hi", stream_id=7)
        assert refusal["error"]["param"] == "stream_id"
        events = await send_request(socket, "hi", store=False)
        assert not any("stream_id" in event for event in events)


@pytest.mark.parametrize("store", [False, True])
async def test_a_message_may_be_prepared_without_an_answer(
    gateway: Gateway, store: bool
):
    async with gateway.socket() as socket:
        said = "My name is Ada"
        events = await send_request(socket, said, generate=False, store=store)
        assert [event["type"] for event in events] == [
            "response.created",
            "response.in_progress",
            "response.completed",
        ]
        prepared = events[-1]["response"]
        assert prepared["output"] == []
        then = {"previous_response_id": prepared["id"], "store": store}
        events = await send_request(socket, "What is my name?", **then)
        assert "Ada" in text_of(events[-1]["response"])


async def test_a_socket_requires_a_token(gateway: Gateway):
    with pytest.raises(InvalidStatus):
        async with connect(f"{gateway.server.ws_url}/v1/responses"):
            pass
