"""A person and a program at a real server: sign in, create turns, follow over SSE or
WebSocket."""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from llm.wire.response_builder import TERMINAL
from llm.wire.sse import SSEDecoder
from tests.serving import PASSWORD, ServerProcess

PositionedEvent = tuple[str, dict[str, Any]]  # position, event
PATIENCE = 60  # seconds
#: Reading the world's certificates takes a client longer than all else it does here.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class Program:
    """Calls the API with a token."""

    def __init__(
        self, server: ServerProcess, user: str = "admin", token: str = ""
    ) -> None:
        self._server = server
        token = token or server.create_token(user)
        self._headers = {"Authorization": f"Bearer {token}"}

    def http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self._server.url,
            headers=self._headers,
            timeout=PATIENCE,
            verify=NO_TLS,
        )

    async def conversation(self) -> str:
        async with self.http() as http:
            created = await http.post("/api/conversations/", json={})
            assert created.is_success, created.text
            return str(created.json()["id"])

    async def create_turn(
        self, conversation: str, text: str, *, key: str = "", **fields: Any
    ) -> str:
        url = f"/api/conversations/{conversation}/turns/"
        headers = {"Idempotency-Key": key} if key else {}
        async with self.http() as http:
            body = {"input": text, **fields}
            answer = await http.post(url, json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    async def turn(self, turn: str) -> dict[str, Any]:
        async with self.http() as http:
            return (await http.get(f"/api/turns/{turn}/")).json()

    async def cancel(self, turn: str) -> None:
        async with self.http() as http:
            (await http.post(f"/api/turns/{turn}/cancel/")).raise_for_status()

    async def follow(
        self, turn: str, after: str | None = None
    ) -> AsyncIterator[PositionedEvent]:
        """Over SSE, until the stream ends."""
        headers = {"Last-Event-ID": after} if after else {}
        url, decoder = f"/api/turns/{turn}/events/", SSEDecoder()
        async with self.http() as http, http.stream("GET", url, headers=headers) as got:
            assert got.status_code in (200, 204)
            async for chunk in got.aiter_bytes():
                for event in decoder.feed(chunk):
                    yield event.id, event.json() | {"type": event.event}


async def sign_in(server: ServerProcess, user: str, password: str = PASSWORD) -> str:
    """The session's cookie."""
    async with httpx.AsyncClient(base_url=server.url) as http:
        page = await http.get("/login/")
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert found, page.text
        fields = {"username": user, "password": password}
        fields["csrfmiddlewaretoken"] = found[1]
        answer = await http.post("/login/", data=fields)
        assert answer.status_code == 302, answer.text
        return f"sessionid={http.cookies['sessionid']}"


def socket(
    server: ServerProcess, conversation: str, cookie: str, **headers: str
) -> Any:
    return connect(
        f"{server.ws_url}/ws/conversations/{conversation}/",
        additional_headers={"Cookie": cookie, "Origin": server.url, **headers},
    )


async def events_of_turn(
    connection: ClientConnection, turn: str
) -> AsyncIterator[PositionedEvent]:
    """The turn's events over a WebSocket, until its end."""
    async for message in connection:
        event = json.loads(message)
        if event.get("turn") == turn and "position" in event:
            yield event["position"], event
            if event["type"] in TERMINAL:
                return


def _order(position: str) -> tuple[int, ...]:
    return tuple(map(int, position.split("-")))


class Screen:
    """What a client shows that obeys the protocol, and what it needs to go on."""

    def __init__(self) -> None:
        self.position: str | None = None
        self.positions: list[str] = []
        self.events: list[dict[str, Any]] = []
        self._items: dict[int, str] = {}

    def show(self, position: str, event: dict[str, Any]) -> None:
        if event["type"] == "reconnect":  # for the client itself
            return
        self.events.append(event)
        if event["type"] != "parley:step.reset":
            self.positions.append(position)
        self.position = position
        match event["type"]:
            case "parley:step.reset":
                index = event["output_index"]
                self.positions = [
                    p for p in self.positions if _order(p) <= _order(position)
                ]
                self._items = {n: t for n, t in self._items.items() if n < index}
            case "response.output_item.added":
                self._items[event["output_index"]] = ""
            case "response.output_text.delta":
                self._items[event["output_index"]] += event["delta"]

    @property
    def text(self) -> str:
        return "".join(self._items.values())

    @property
    def over(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in TERMINAL
