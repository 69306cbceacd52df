"""Messages to an application of a request or a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Protocol

MOST = 2  # messages that wait; then no more are read from the connection


class Source(Protocol):
    """What Twisted's public interface `IPushProducer` says of each transport.

    Source: https://docs.twisted.org/en/stable/core/howto/producers.html
    """

    def pauseProducing(self) -> None: ...
    def resumeProducing(self) -> None: ...


class Inbox:
    """As much of a queue as servers ask for. Whoever waits is handed the message.

    Asyncio's has four deques and an event, which is 3 KB of each open connection. With
    a `source` the connection is not read while `MOST` messages wait: a client that
    sends faster than it is answered waits itself, and nothing it sent is lost.
    """

    __slots__ = ("_is_paused", "_loop", "_messages", "_source", "_waiting")

    def __init__(
        self, messages: Iterable[Any] = (), source: Source | None = None
    ) -> None:
        self._source = source
        self._is_paused = False
        self._loop = asyncio.get_running_loop()
        # Hardly ever is there any, and thousands may be open: no lists of their own.
        self._messages: tuple[Any, ...] = tuple(messages)
        self._waiting: tuple[asyncio.Future[Any], ...] = ()

    def empty(self) -> bool:
        return not self._messages

    def get(self) -> asyncio.Future[Any]:
        """The next message. It is lost where nobody awaits it to the end."""
        coming: asyncio.Future[Any] = self._loop.create_future()
        if self._messages:
            message, *others = self._messages
            self._messages = tuple(others)
            coming.set_result(message)
            if self._is_paused and self._source and len(others) < MOST:
                self._is_paused = False
                self._source.resumeProducing()
        else:
            self._waiting = (*self._waiting, coming)
        return coming

    async def receive(self) -> Any:
        """As ASGI has it. Whoever is cancelled leaves the message to the next."""
        coming = self.get()
        try:
            return await coming
        except asyncio.CancelledError:
            if not (coming.cancel() or coming.cancelled()):  # it had come by then
                self._give_back(coming.result())
            raise

    def _give_back(self, message: Any) -> None:
        if not self._is_handed_over(message):
            self._messages = (message, *self._messages)

    def put_nowait(self, message: Any) -> None:
        if not self._is_handed_over(message):
            self._messages = (*self._messages, message)
            if self._source and not self._is_paused and len(self._messages) >= MOST:
                self._is_paused = True
                self._source.pauseProducing()

    def _is_handed_over(self, message: Any) -> bool:
        while self._waiting:
            coming, *others = self._waiting
            self._waiting = tuple(others)
            if not coming.done():
                coming.set_result(message)
                return True
        return False
