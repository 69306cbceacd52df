"""A Redis connection with any number of commands in flight.

redis-py opens it, so addresses, passwords and TLS work as everywhere; then this class
takes over the socket.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import TimeoutError as Late

from conversations.engine.resp import Command, Replies, Reply, pack

PATIENCE = 3.0  # seconds to wait for a reply, or for any data


class Pipe(asyncio.Protocol):
    """Calls `on_push` with messages that are not replies to a command."""

    def __init__(self, told: Callable[[Reply], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.heard_at = self._loop.time()
        self._told = told
        self._replies = Replies()
        self._waiting: deque[_Question] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls, pool: ConnectionPool, told: Callable[[Reply], None] | None = None
    ) -> Self:
        """Raises the errors of redis-py."""
        pipe = cls(told)
        # Stored, because redis-py closes the socket with the object.
        connection: Any = cast(Any, pool).make_connection()
        pipe._connection = connection
        try:
            await connection.connect()
        except BaseException:
            connection._close()
            raise
        pipe._transport = connection._writer.transport
        pipe._transport.set_protocol(pipe)
        return pipe

    _connection: Any
    _transport: asyncio.Transport

    def ask(self, commands: Sequence[Command]) -> asyncio.Future[list[Reply]]:
        """Send the commands at once. Redis errors are among the replies; if there is no
        reply in time, this future and all others fail."""
        asked = _Question(self._loop, len(commands))
        if self.lost.done():
            asked.answer.set_exception(Lost("the connection is gone"))
            return asked.answer
        self._waiting.append(asked)
        self.say(*commands)
        if self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._look)
        return asked.answer

    def say(self, *commands: Command) -> None:
        """Send commands whose reply, if there is one, goes to `on_push`."""
        if not self.lost.done():
            self._transport.write(pack(commands))

    def close(self, why: Exception | None = None) -> None:
        if self.lost.done():
            return
        self.lost.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        self._transport.abort()
        self._connection._close()
        for asked in self._waiting:
            if not asked.answer.done():
                asked.answer.set_exception(why or Lost("the connection was closed"))
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        for reply in self._replies.feed(data):
            if self._told is not None:
                self._told(reply)
            else:
                self._answer(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(Lost(f"the connection broke: {type(exc).__name__}"))

    def _answer(self, reply: Reply) -> None:
        asked = self._waiting[0]
        asked.replies.append(reply)
        if len(asked.replies) == asked.wanted:
            self._waiting.popleft()
            if not asked.answer.done():
                asked.answer.set_result(asked.replies)

    def _look(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        since = max(self._waiting[0].asked_at, self.heard_at)
        left = since + PATIENCE - self._loop.time()
        if left <= 0:
            self.close(Late("no answer in time"))
        else:
            self._timer = self._loop.call_later(left, self._look)


class _Question:
    __slots__ = ("answer", "asked_at", "replies", "wanted")

    def __init__(self, loop: asyncio.AbstractEventLoop, wanted: int) -> None:
        self.answer: asyncio.Future[list[Reply]] = loop.create_future()
        self.asked_at = loop.time()
        self.wanted = wanted
        self.replies: list[Reply] = []
