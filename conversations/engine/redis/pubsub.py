"""A process's Redis connections: one that receives published messages, one for
pipelined commands, and a pool for everything else.

A published message may be lost, so every receiver also polls from time to time.
Notifications are `<kind> <id> <id> ...` on one channel for all processes. A turn's
events are published on a channel of its own, to which only processes with subscribers
of the turn subscribe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from conversations.engine.process.task_shutdown import cancel_and_wait
from conversations.engine.redis.connection import REPLY_TIMEOUT, PipelinedConnection
from conversations.engine.redis.resp import Command, Reply
from conversations.throttled_warning import ThrottledWarning

logger = logging.getLogger(__name__)

REDIS_ERRORS = (RedisError, OSError, TimeoutError)
#: Also uvloop's error of writing to a transport that was closed a moment ago.
UNAVAILABLE = (*REDIS_ERRORS, RuntimeError)
PING = 5.0  # seconds of silence after which a PING is sent
BACKOFF = 1.0  # seconds; longest pause between two attempts

OnNotification = Callable[[str, list[str]], None]


class RedisBus:
    """Calls `on_notification` for every notification received."""

    def __init__(self, url: str, on_notification: OnNotification) -> None:
        # All databases of a Redis server share their channels.
        number = urlsplit(url).path.strip("/") or 0
        self._notification_channel = f"parley:hints:{number}"
        self._turn_channel_prefix = f"parley:told:{number}:"
        self._on_notification = on_notification
        self._subscriptions: dict[str, Callable[[bytes], None]] = {}
        self.connection_count = 0  # connections made; before each, data may be lost
        self._pool = self._make_pool(url)
        self.redis = Redis(connection_pool=self._pool)
        self._pipe: PipelinedConnection | None = None
        self._connecting = asyncio.Lock()
        self._subscriber_pipe: PipelinedConnection | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._receive_loop())

    async def close(self) -> None:
        await cancel_and_wait([self._task])
        for pipe in (self._subscriber_pipe, self._pipe):
            if pipe is not None:
                pipe.close()
        with suppress(*UNAVAILABLE):
            await self.redis.aclose()
            await self._pool.disconnect()

    async def publish_notification(self, kind: str, *ids: str) -> None:
        with suppress(*UNAVAILABLE):
            await self.redis.publish(self._notification_channel, " ".join([kind, *ids]))

    async def connect(self) -> None:
        """Make sure that `execute` has a connection."""
        async with self._connecting:
            if self._pipe is None or self._pipe.lost.done():
                self._pipe = await PipelinedConnection.open(self._pool)

    def execute(self, commands: Sequence[Command]) -> asyncio.Future[list[Reply]]:
        assert self._pipe is not None, "after `connect`"
        return self._pipe.execute(commands)

    # Turns

    def channel_of(self, turn_id: str) -> str:
        return self._turn_channel_prefix + turn_id

    def subscribe(self, turn_id: str, on_message: Callable[[bytes], None]) -> bool:
        """Call `on_message` with each message on the turn's channel, and with b"" when
        messages may have been lost: also once Redis confirms the subscription. False if
        there is no connection now."""
        self._subscriptions[turn_id] = on_message
        pipe = self._subscriber_pipe
        if pipe is None or pipe.lost.done():
            return False
        pipe.send(("SUBSCRIBE", self.channel_of(turn_id)))
        return True

    def unsubscribe(self, turn_id: str) -> None:
        if self._subscriptions.pop(turn_id, None) and self._subscriber_pipe is not None:
            self._subscriber_pipe.send(("UNSUBSCRIBE", self.channel_of(turn_id)))

    def _make_pool(self, url: str) -> ConnectionPool:
        async def on_connect(connection: Connection) -> None:
            self.connection_count += 1
            await connection.on_connect()

        return ConnectionPool.from_url(
            url,
            socket_timeout=REPLY_TIMEOUT,
            socket_connect_timeout=REPLY_TIMEOUT,
            health_check_interval=int(PING),
            redis_connect_func=on_connect,
            protocol=2,  # which a `PipelinedConnection` reads
            # A retry would hide that Redis was unavailable and may have lost data.
            retry=Retry(NoBackoff(), 0),
        )

    # Receiving

    async def _receive_loop(self) -> None:
        pause, warning = (
            0.1,
            ThrottledWarning(logger, "notifications cannot be read from Redis: %s"),
        )
        while True:
            try:
                pipe = self._subscriber_pipe = await PipelinedConnection.open(
                    self._pool, self.dispatch
                )
                channels = [
                    self._notification_channel,
                    *map(self.channel_of, self._subscriptions),
                ]
                pipe.send(("SUBSCRIBE", *channels))
                pause = 0.1
                await _check_connection(pipe)
            except Exception as exc:  # else the process would never hear of one again
                warning.log(type(exc).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACKOFF)

    def dispatch(self, reply: Any) -> None:
        match reply:
            case [b"message", channel, data]:
                name = channel.decode()
                if name == self._notification_channel:
                    kind, *ids = data.decode().split(" ")
                    self._on_notification(kind, ids)
                else:
                    self._dispatch_turn_message(name, data)
            case [b"subscribe", channel, _]:
                # Messages published before the subscription were not received.
                self._dispatch_turn_message(channel.decode(), b"")

    def _dispatch_turn_message(self, channel: str, data: bytes) -> None:
        if on_message := self._subscriptions.get(
            channel.removeprefix(self._turn_channel_prefix)
        ):
            on_message(data)


async def _check_connection(pipe: PipelinedConnection) -> None:
    """Never returns; raises RedisConnectionError once Redis does not answer a PING."""
    while True:
        before = pipe.received_at
        await asyncio.wait([pipe.lost], timeout=PING)
        if pipe.received_at == before:
            pipe.send(("PING",))
            await asyncio.wait([pipe.lost], timeout=REPLY_TIMEOUT)
            if pipe.received_at == before:
                pipe.close()
        if pipe.lost.done():
            raise RedisConnectionError("the connection is closed")
