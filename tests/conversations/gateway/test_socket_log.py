"""The log of a token has its requests over a WebSocket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.gateway import loop_resources
from conversations.gateway.websocket import ResponsesConsumer
from conversations.models import AccessToken, Conversation
from conversations.models.access_token import Scope
from conversations.models.gateway.request_log import LoggedRequest
from llm.wire.deltas import FinishDelta, TextDelta

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "sk-0123456789abcdef0123456789abcdef"
_REQUEST = {"type": "response.create", "model": "demo", "store": False}
MESSAGES = [
    json.dumps({**_REQUEST, "input": f"Use {KEY}"}),
    json.dumps({**_REQUEST, "input": "Hi", "background": True}),
    "no JSON",
]


async def _converse(headers: list[tuple[bytes, bytes]]) -> list[dict[str, Any]]:
    """The events that answer `MESSAGES`; each is sent after the answer to the last."""
    answered = asyncio.Semaphore(1)
    waiting = iter(MESSAGES)
    events: list[dict[str, Any]] = []
    scope = {
        "type": "websocket",
        "path": "/v1/responses",
        "headers": headers,
        "client": ["127.0.0.1", 1],
        "subprotocols": [],
    }
    connected = iter([{"type": "websocket.connect"}])

    async def receive() -> dict[str, Any]:
        if (first := next(connected, None)) is not None:
            return first
        await answered.acquire()
        if (text := next(waiting, None)) is None:
            return {"type": "websocket.disconnect", "code": 1000}
        return {"type": "websocket.receive", "text": text}

    async def send(message: dict[str, Any]) -> None:
        if text := message.get("text"):
            events.append(json.loads(text))
            if events[-1]["type"] in ("response.completed", "error"):
                answered.release()

    async with asyncio.timeout(30):
        await ResponsesConsumer.as_asgi()(scope, receive, send)
    return events


@pytest.mark.parametrize("is_logged", [True, False])
async def test_each_request_is_a_row_with_its_events(
    is_logged: bool, conversation: Conversation, say: Any
):
    owner = await sync_to_async(lambda: conversation.owner)()
    token, secret = await sync_to_async(AccessToken.issue)(
        owner, "t", scopes=Scope.values
    )
    await sync_to_async(token.log_requests)(on=is_logged)
    say([TextDelta(0, "Yes"), FinishDelta("stop")])
    authorization = (b"authorization", f"Bearer {secret}".encode())
    events = await _converse([authorization, (b"x-request-id", b"mine")])
    await loop_resources.close()  # writes what waits
    rows = [row async for row in LoggedRequest.objects.order_by("pk")]
    if not is_logged:
        assert not rows
        return
    assert [(row.method, row.status) for row in rows] == [
        ("WS", 200),
        ("WS", 400),
        ("WS", 400),
    ]
    first = rows[0]
    assert first.request_id == events[0]["response"]["id"]
    assert (first.client_request_id, first.model) == ("mine", "demo")
    assert "Use " in first.request_text
    assert KEY not in first.request_text + first.response_text
    assert "response.completed" in first.response_text
    assert first.request_size == len(MESSAGES[0])
    assert "background" in rows[1].response_text
    assert rows[2].request_text == "no JSON"
