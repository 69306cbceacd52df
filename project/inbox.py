"""Messages to an application of a socket that is open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


class Inbox:
    """As much of a queue as servers ask for. Whoever waits is handed the message.

    Asyncio's has three deques and an event, which is 3 KB of each open page.
    """

    __slots__ = ("_loop", "_messages", "_waiting")

    def __init__(self, messages: Iterable[Any] = ()) -> None:
        self._loop = asyncio.get_running_loop()
        self._messages = list(messages)
        self._waiting: list[asyncio.Future[Any]] = []

    def empty(self) -> bool:
        return not self._messages

    def get(self) -> asyncio.Future[Any]:
        coming: asyncio.Future[Any] = self._loop.create_future()
        if self._messages:
            coming.set_result(self._messages.pop(0))
        else:
            self._waiting.append(coming)
        return coming

    async def receive(self) -> Any:
        """As ASGI has it."""
        return await self.get()

    def put_nowait(self, message: Any) -> None:
        while self._waiting:
            coming = self._waiting.pop(0)
            if not coming.done():
                coming.set_result(message)
                return
        self._messages.append(message)
