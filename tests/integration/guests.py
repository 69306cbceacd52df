"""A participant of conversations with open pages, whom the owner removes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection

from tests.integration.clients import PATIENCE, Program, sign_in, socket
from tests.serving import PASSWORD, ServerProcess

_CREATE = (
    "from django.contrib.auth.models import User;"
    "User.objects.create_user({name!r}, password={password!r})"
)
_REVOKE = (
    "import time; from django.utils import timezone;"
    "from conversations.models import Participant;"
    "Participant.objects.filter(pk={pk}).update(revoked_at=timezone.now());"
    "print(time.time())"
)


class Guest:
    """A user with a token and a session of their own. Blocks while it is made."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        code = _CREATE.format(name=name, password=PASSWORD)
        server.manage("shell", "-v0", "-c", code)
        self.name = name
        self.token = server.create_token(name)
        self._server = server
        self._cookie = ""

    async def join(self, owner: Program, conversation: str, role: str) -> int:
        """The id of the participation."""
        path = f"/api/conversations/{conversation}/participants/"
        async with owner.http() as http:
            invited = await http.post(path, json={"name": self.name, "role": role})
        assert invited.status_code == 201, invited.text
        pk: int = invited.json()["id"]
        async with Program(self._server, token=self.token).http() as http:
            accepted = await http.post(f"/api/invitations/{pk}/accept/")
        assert accepted.status_code == 200, accepted.text
        return pk

    @asynccontextmanager
    async def pages(
        self, webs: Sequence[ServerProcess], conversation: str
    ) -> AsyncIterator[list[ClientConnection]]:
        """An open page at each of these processes, answering."""
        self._cookie = self._cookie or await sign_in(self._server, self.name)
        async with AsyncExitStack() as opened:
            pages: list[ClientConnection] = []
            for web in webs:
                page = socket(web, conversation, self._cookie)
                pages.append(await opened.enter_async_context(page))
                await pages[-1].send('{"type": "ping"}')
                async for text in pages[-1]:
                    if b"parley:pong" in _bytes(text):
                        break
            yield pages


async def remove(owner: Program, pk: int) -> None:
    async with owner.http() as http:
        removed = await http.delete(f"/api/participants/{pk}/")
    assert removed.status_code == 204, removed.text


def revoke_unannounced(server: ServerProcess, pk: int) -> float:
    """Change the row as a process does whose notification is lost. The time."""
    code = _REVOKE.format(pk=pk)
    return float(server.manage("shell", "-v0", "-c", code).splitlines()[-1])


async def closed(page: ClientConnection) -> tuple[int | None, float]:
    """The code with which the server closes the page, and the time."""
    async with asyncio.timeout(PATIENCE):
        await page.wait_closed()
    return page.close_code, time.time()


def _bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)
