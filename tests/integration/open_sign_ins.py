"""A chat in a real server that waits for the user's sign-in at an MCP server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection

from tests.serving import ServerProcess
from tests.tools.mcp.oauth_server import SignInServer
from tests.tools.mcp.own_sign_in import agree

CALL = "/tool notes__whoami {}"
_STORE = """
from django.contrib.auth.models import User
from tests.tools.mcp.own_sign_in import store_server
store_server({url!r}, User.objects.create_superuser("root"))
"""


def offer_tool(server: ServerProcess, notes: SignInServer) -> None:
    server.manage("shell", "-v0", "-c", _STORE.format(url=notes.url))


async def ask_for_sign_in(connection: ClientConnection) -> dict[str, Any]:
    """Send a message whose tool needs a sign-in, and return the question's event."""
    await connection.send(json.dumps({"type": "turn.create", "input": CALL}))
    return await receive(connection, "parley:approval.requested")


async def receive(connection: ClientConnection, kind: str) -> dict[str, Any]:
    """The next event of this type, with its turn."""
    async with asyncio.timeout(60):
        async for message in connection:
            event: dict[str, Any] = json.loads(message)
            if event["type"] == kind:
                return event
    raise AssertionError(f"the connection closed before {kind}")


async def sign_in_at(server: ServerProcess, question: dict[str, Any], cookie: str):
    """From the card to the authorization server and back, all at this process."""
    headers = {"Cookie": cookie}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as browser:
        page = await browser.get(question["url"])
        assert page.status_code == 302, page.text
        back = await asyncio.to_thread(agree, page.headers["location"])
        answered = await browser.get(back)
        assert answered.status_code == 302, answered.text
