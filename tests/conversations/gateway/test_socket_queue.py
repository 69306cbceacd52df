"""A client of the gateway's WebSocket that sends faster than it is answered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.gateway import loop_resources
from conversations.gateway.websocket import MAX_QUEUED_MESSAGES, ResponsesConsumer
from conversations.models import AccessToken, Conversation
from conversations.models.access_token import Scope
from llm.wire.deltas import FinishDelta, TextDelta

pytestmark = pytest.mark.django_db(transaction=True)

LIMIT = 20


class Connection:
    """A client that has sent all its requests; what of them is read is counted."""

    def __init__(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.read = 0
        self.sent: list[dict[str, Any]] = []
        self.closed = asyncio.Event()
        self.answered = asyncio.Event()
        self.scope = {
            "type": "websocket",
            "path": "/v1/responses",
            "headers": headers,
            "client": ["127.0.0.1", 1],
            "subprotocols": [],
        }

    async def receive(self) -> dict[str, Any]:
        self.read += 1
        if self.read == 1:
            return {"type": "websocket.connect"}
        if self.read <= LIMIT + 1:
            body = {"model": "demo", "input": f"{self.read - 1}", "store": False}
            return {
                "type": "websocket.receive",
                "text": json.dumps({"type": "response.create", **body}),
            }
        await self.closed.wait()
        return {"type": "websocket.disconnect", "code": 1000}

    async def send(self, message: dict[str, Any]) -> None:
        if text := message.get("text"):
            self.sent.append(json.loads(text))
        if len(self.completed) == LIMIT:
            self.answered.set()

    @property
    def completed(self) -> list[dict[str, Any]]:
        return [e["response"] for e in self.sent if e["type"] == "response.completed"]


async def test_no_more_is_read_than_can_wait_and_nothing_is_lost(
    conversation: Conversation, say
):
    _, secret = await sync_to_async(AccessToken.issue)(
        await sync_to_async(lambda: conversation.owner)(), "t", scopes=Scope.values
    )
    goes_on = asyncio.Event()
    script = say([goes_on, TextDelta(0, "Yes"), FinishDelta("stop")])
    connection = Connection([(b"authorization", f"Bearer {secret}".encode())])
    serving = asyncio.ensure_future(
        ResponsesConsumer.as_asgi()(
            connection.scope, connection.receive, connection.send
        )
    )
    try:
        async with asyncio.timeout(30):
            while not script.requests:
                await asyncio.sleep(0)
            for _ in range(100):  # it would have read all of them by now
                await asyncio.sleep(0)
            # The first is being answered, two wait, one is about to.
            assert connection.read <= 1 + 1 + MAX_QUEUED_MESSAGES + 1
            goes_on.set()
            await connection.answered.wait()
        texts = [request.items[-1]["content"] for request in script.requests]
        assert [text[0]["text"] for text in texts] == [
            str(number) for number in range(1, LIMIT + 1)
        ]
    finally:
        connection.closed.set()
        await serving
        await loop_resources.close()
