"""A caller of the gateway that does not read: the provider is not read either."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.gateway import loop_resources
from conversations.gateway.stateless import LARGE_TEXT
from conversations.gateway.websocket import ResponsesConsumer
from conversations.models import AccessToken, Conversation
from conversations.models.access_token import Scope
from llm.wire.deltas import FinishDelta, TextDelta
from project.server.application import application

pytestmark = pytest.mark.django_db(transaction=True)

PIECES = 1_000
AHEAD = 5  # pieces taken from the provider beyond those the caller was sent
MESSAGES = [{"role": "user", "content": "Go on"}]
BODIES = {
    "/v1/responses": {"input": "Go on", "store": False},
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 9},
}


class Answer(list[Any]):
    """A provider's deltas; counts how many were consumed."""

    taken = 0

    def __iter__(self) -> Iterator[Any]:
        self.taken = 0
        for piece in super().__iter__():
            self.taken += 1
            yield piece


class Reader:
    """A connection whose buffer takes a few messages, and no more until `reads`."""

    def __init__(self, path: str, secret: str, *, websocket: bool = False) -> None:
        body = {"model": "demo", **BODIES[path]}
        self.full = asyncio.Event()
        self.reads = asyncio.Event()
        self.sent = 0  # messages
        self.longest = 0  # bytes of one
        self._disconnected = asyncio.Event()
        event = json.dumps({"type": "response.create", **body})
        self._asking: list[dict[str, Any]] = [
            {
                "type": "http.request",
                "body": json.dumps({**body, "stream": True}).encode(),
            }
        ]
        if websocket:
            self._asking = [
                {"type": "websocket.connect"},
                {"type": "websocket.receive", "text": event},
            ]
        self.scope = {
            "type": "websocket" if websocket else "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [
                (b"authorization", f"Bearer {secret}".encode()),
                (b"content-type", b"application/json"),
            ],
            "client": ["127.0.0.1", 1],
            "subprotocols": [],
        }

    async def receive(self) -> dict[str, Any]:
        if self._asking:
            return self._asking.pop(0)
        await self._disconnected.wait()
        return {"type": f"{self.scope['type']}.disconnect", "code": 1000}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent += 1
        self.longest = max(self.longest, len(message.get("body", b"")))
        if self.sent > 10:
            self.full.set()
            await self.reads.wait()

    def leave(self) -> None:
        self._disconnected.set()


@pytest.mark.parametrize(
    ("path", "websocket"),
    [*((path, False) for path in BODIES), ("/v1/responses", True)],
)
async def test_an_unread_response_pauses_the_provider(
    conversation: Conversation, say, path: str, websocket: bool
):
    _, secret = await sync_to_async(AccessToken.issue)(
        await sync_to_async(lambda: conversation.owner)(), "t", scopes=Scope.values
    )
    answer = Answer(
        [*(TextDelta(0, "word ") for _ in range(PIECES)), FinishDelta("stop")]
    )
    say(answer)
    reader = Reader(path, secret, websocket=websocket)
    app: Any = ResponsesConsumer.as_asgi() if websocket else application
    serving = asyncio.ensure_future(app(reader.scope, reader.receive, reader.send))
    try:
        async with asyncio.timeout(60):
            await reader.full.wait()
            for _ in range(200):  # all of it would have been taken by now
                await asyncio.sleep(0)
            assert answer.taken <= reader.sent + AHEAD
            reader.reads.set()
            while answer.taken <= PIECES:
                await asyncio.sleep(0)
    finally:
        reader.reads.set()
        reader.leave()
        await asyncio.gather(serving, return_exceptions=True)
        await loop_resources.close()


@pytest.mark.parametrize("path", BODIES)
async def test_a_large_answer_is_never_written_several_times_at_once(
    conversation: Conversation, say, path: str
):
    """The events at the end of a Responses stream each repeat the text."""
    _, secret = await sync_to_async(AccessToken.issue)(
        await sync_to_async(lambda: conversation.owner)(), "t", scopes=Scope.values
    )
    text = "word " * (LARGE_TEXT // 5)
    say([TextDelta(0, text), TextDelta(0, text), FinishDelta("stop")])
    reader = Reader(path, secret)
    reader.reads.set()
    try:
        async with asyncio.timeout(60):
            await application(reader.scope, reader.receive, reader.send)
        assert reader.longest < 2.1 * len(text), "one event, and its frame"
    finally:
        reader.leave()
        await loop_resources.close()
