"""How many objects an open stream takes: a bound that is counted, not timed.

Python's garbage collector visits each of them, so with thousands of streams their
number costs time as well as memory.
"""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.gateway import loop_resources
from conversations.models import Conversation
from llm.wire.deltas import FinishDelta, TextDelta
from project.server.application import application
from tests.conversations.scene import bearer

pytestmark = pytest.mark.django_db(transaction=True)

STREAMS = 20
#: Lower them with objects that are saved. Those of the client of this test count too.
BOUNDS = {True: 250, False: 165}  # of a stored response, and of one that is not


class Client:
    """A connection that reads the answer's first piece and stays."""

    def __init__(self, headers: dict[str, str], body: dict[str, Any]) -> None:
        self._body = json.dumps(body).encode()
        self.began = asyncio.Event()
        self.status = 0
        self._leaves = asyncio.Event()
        self._headers = [
            (name.lower().encode(), text.encode()) for name, text in headers.items()
        ]
        self.task = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/responses",
            "query_string": b"",
            "headers": self._headers,
            "client": ("127.0.0.1", 1),
        }
        try:
            await application(scope, self._receive, self._send)
        finally:
            self.began.set()  # or a test would wait for a piece that never comes

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            body, self._body = self._body, b""
            return {"type": "http.request", "body": body}
        await self._leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        if message.get("body"):
            self.began.set()


@pytest.mark.parametrize("is_stored", [True, False])
async def test_an_open_stream_takes_few_objects(
    is_stored: bool, conversation: Conversation, say: Any, running: None
):
    ends = asyncio.Event()
    say([TextDelta(0, "Hello."), ends, FinishDelta("stop")])
    headers = await sync_to_async(bearer)(conversation.owner)
    model = conversation.language_model
    assert model
    body = {"model": model.public_name, "input": "Hi", "stream": True}
    body |= {"store": is_stored}

    async def open_streams(count: int) -> list[Client]:
        clients = [Client(headers, body) for _ in range(count)]
        await asyncio.gather(*(client.began.wait() for client in clients))
        assert {(client.status, client.task.done()) for client in clients} == {
            (200, False)
        }
        gc.collect()
        return clients

    try:
        clients = await open_streams(3)  # caches and threads
        before = len(gc.get_objects())
        clients += await open_streams(STREAMS)
        objects = (len(gc.get_objects()) - before) / STREAMS
        ends.set()
        await asyncio.gather(*(client.task for client in clients))
    finally:
        await loop_resources.close()
    assert objects <= BOUNDS[is_stored]
