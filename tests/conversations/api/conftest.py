"""An open page's WebSocket, for tests that compare it with REST."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.test import Client

from conversations.models import Conversation
from project.server.application import application


class Page:
    """An open page's socket, through all of the application."""

    def __init__(self, conversation: Conversation, cookie: bytes) -> None:
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self._hears: asyncio.Queue[Any] = asyncio.Queue()
        path = f"/ws/conversations/{conversation.pk}/"
        own = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
        headers = [*own, (b"cookie", cookie)]
        scope = {"type": "websocket", "path": path, "headers": headers}
        self._inbox.put_nowait({"type": "websocket.connect"})
        self._task = asyncio.ensure_future(
            application(scope, self._inbox.get, self._hears.put)
        )

    async def say(self, **message: Any) -> None:
        text = json.dumps(message)
        await self._inbox.put({"type": "websocket.receive", "text": text})

    async def until(self, type_: str) -> dict[str, Any]:
        while True:
            heard = await self._hears.get()
            assert heard["type"] != "websocket.close", heard
            event = json.loads(heard.get("text") or "{}")
            if event.get("type") == type_:
                return event

    async def close(self) -> None:
        await self._inbox.put({"type": "websocket.disconnect", "code": 1000})
        await self._task


@pytest.fixture
async def page(conversation, running):
    def cookie() -> bytes:
        client = Client()
        client.force_login(conversation.owner)
        name = django_settings.SESSION_COOKIE_NAME
        return f"{name}={client.cookies[name].value}".encode()

    page = Page(conversation, await sync_to_async(cookie)())
    yield page
    await page.close()
