"""A client whose requests are spread over the web processes of two versions."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
from websockets.exceptions import WebSocketException

from tests.integration.clients import (
    PATIENCE,
    PositionedEvent,
    Program,
    events_of_turn,
    socket,
)
from tests.serving import ServerProcess


class Doors(Program):
    """Each request goes to one of the open web processes at random, and each message
    and each stream over HTTP or a WebSocket. `problems`: answers from 500 on, and
    refusals over a WebSocket."""

    def __init__(
        self, token: str, cookie: str, dice: random.Random, *webs: ServerProcess
    ) -> None:
        super().__init__(webs[0], token=token)
        self.open = list(webs)
        self._token = token
        self.problems: list[str] = []
        self._cookie = cookie
        self._dice = dice
        self._conversations: dict[str, str] = {}  # by turn

    def http(self) -> httpx.AsyncClient:
        client = Program(self._dice.choice(self.open), token=self._token).http()
        client.event_hooks = {"response": [self._note]}
        return client

    async def _note(self, response: httpx.Response) -> None:
        if response.status_code >= 500:
            await response.aread()
            request = response.request
            self.problems.append(
                f"{response.status_code} of {request.method} {request.url}:"
                f" {response.text[:200]}"
            )

    async def create_turn(
        self, conversation: str, text: str, *, key: str = "", **fields: Any
    ) -> str:
        fields = {name: value for name, value in fields.items() if value}
        if self._dice.random() < 0.5:
            turn = await super().create_turn(conversation, text, key=key, **fields)
        else:
            turn = await self._send_message(conversation, text, key, fields)
        self._conversations[turn] = conversation
        return turn

    async def _send_message(
        self, conversation: str, text: str, key: str, fields: dict[str, Any]
    ) -> str:
        message = {"type": "turn.create", "input": text, "key": key or text, **fields}
        web = self._dice.choice(self.open)
        try:
            async with (
                asyncio.timeout(PATIENCE),
                socket(web, conversation, self._cookie) as connection,
            ):
                await connection.send(json.dumps(message))
                async for received in connection:
                    event = json.loads(received)
                    if event.get("key") != message["key"]:
                        continue
                    if event["type"] == "error":
                        self.problems.append(f"refused at {web.url}: {event['error']}")
                    else:
                        return str(event["turn"])
        except (WebSocketException, OSError) as exc:
            raise httpx.TransportError(str(exc)) from exc
        raise httpx.TransportError("no answer")

    async def follow(
        self, turn: str, after: str | None = None
    ) -> AsyncIterator[PositionedEvent]:
        conversation = self._conversations.get(turn)
        if conversation is None or self._dice.random() < 0.5:
            async with aclosing(super().follow(turn, after)) as events:
                async for each in events:
                    yield each
            return
        web = self._dice.choice(self.open)
        wish = {"type": "turn.follow", "turn": turn, "after": after}
        async with socket(web, conversation, self._cookie) as connection:
            await connection.send(json.dumps(wish))
            async with aclosing(events_of_turn(connection, turn)) as events:
                async for each in events:
                    yield each
