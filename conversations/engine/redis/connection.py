"""A Redis connection with any number of commands in flight.

redis-py opens it, so addresses, passwords and TLS work as everywhere; then this class
takes over the socket. redis-py itself reads each line of a reply with an await and a
timer of its own: with it, and a query by each web process, a delta took 94 ms from the
worker to its readers at load 10 (95th percentile, docs/decisions/0011).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from conversations.engine.redis.resp import Command, Replies, Reply, pack

REPLY_TIMEOUT = 3.0  # seconds to wait for a reply, or for any data


class PipelinedConnection(asyncio.Protocol):
    """Calls `on_push` with messages that are not replies to a command."""

    def __init__(self, on_push: Callable[[Reply], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.received_at = self._loop.time()
        self._on_push = on_push
        self._replies = Replies()
        self._waiting: deque[_PendingRequest] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls, pool: ConnectionPool, on_push: Callable[[Reply], None] | None = None
    ) -> Self:
        """Raises the errors of redis-py."""
        pipe = cls(on_push)
        connection: Any = cast(Any, pool).make_connection()
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        # The socket would be closed with its owner, the writer.
        pipe._socket_owner, connection._writer = connection._writer, None
        pipe._transport = pipe._socket_owner.transport
        pipe._transport.set_protocol(pipe)
        return pipe

    _socket_owner: asyncio.StreamWriter
    _transport: Any  # asyncio.Transport

    def execute(self, commands: Sequence[Command]) -> asyncio.Future[list[Reply]]:
        """Send the commands at once. Redis errors are among the replies; if there is no
        reply in time, this future and all others fail."""
        request = _PendingRequest(self._loop, len(commands))
        if self.lost.done():
            request.answer.set_exception(
                RedisConnectionError("the connection is closed")
            )
            return request.answer
        self._waiting.append(request)
        self.send(*commands)
        if self._timer is None:
            self._timer = self._loop.call_later(REPLY_TIMEOUT, self._check_timeout)
        return request.answer

    def send(self, *commands: Command) -> None:
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
        for request in self._waiting:
            if not request.answer.done():
                request.answer.set_exception(
                    why or RedisConnectionError("the connection was closed")
                )
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        self.received_at = self._loop.time()
        for reply in self._replies.feed(data):
            if self._on_push is not None:
                self._on_push(reply)
            else:
                self._resolve(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(RedisConnectionError(f"the connection failed: {type(exc).__name__}"))

    def _resolve(self, reply: Reply) -> None:
        request = self._waiting[0]
        request.replies.append(reply)
        if len(request.replies) == request.expected:
            self._waiting.popleft()
            if not request.answer.done():
                request.answer.set_result(request.replies)

    def _check_timeout(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        since = max(self._waiting[0].sent_at, self.received_at)
        left = since + REPLY_TIMEOUT - self._loop.time()
        if left <= 0:
            self.close(RedisTimeoutError("no response in time"))
        else:
            self._timer = self._loop.call_later(left, self._check_timeout)


class _PendingRequest:
    __slots__ = ("answer", "expected", "replies", "sent_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, expected: int) -> None:
        self.answer: asyncio.Future[list[Reply]] = loop.create_future()
        self.sent_at = loop.time()
        self.expected = expected
        self.replies: list[Reply] = []
