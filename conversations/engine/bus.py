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
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import RedisError

from conversations.engine.ending import end
from conversations.engine.pipe import PATIENCE, Pipe
from conversations.engine.resp import Command, Reply
from conversations.throttled_warning import ThrottledWarning

logger = logging.getLogger(__name__)

AWAY = (RedisError, OSError, TimeoutError)
PING = 5.0  # seconds of silence after which a PING is sent
BACKOFF = 1.0  # seconds; longest pause between two attempts

Heard = Callable[[str, list[str]], None]


class Bus:
    """Calls `on_notification` for every notification received."""

    def __init__(self, url: str, heard: Heard) -> None:
        # All databases of a Redis server share their channels.
        number = urlsplit(url).path.strip("/") or 0
        self._hints = f"parley:hints:{number}"
        self._turns = f"parley:told:{number}:"
        self._heard = heard
        self._followed: dict[str, Callable[[bytes], None]] = {}
        self.connected = 0  # connections made; before each, data may be lost
        self._pool = self._make_pool(url)
        self.redis = Redis(connection_pool=self._pool)
        self._pipe: Pipe | None = None
        self._connecting = asyncio.Lock()
        self._hearing: Pipe | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._listen())

    async def close(self) -> None:
        await end([self._task])
        for pipe in (self._hearing, self._pipe):
            if pipe is not None:
                pipe.close()
        with suppress(*AWAY):
            await self.redis.aclose()
            await self._pool.disconnect()

    async def say(self, kind: str, *ids: str) -> None:
        with suppress(*AWAY):
            await self.redis.publish(self._hints, " ".join([kind, *ids]))

    async def connect(self) -> None:
        """Make sure that `execute` has a connection."""
        async with self._connecting:
            if self._pipe is None or self._pipe.lost.done():
                self._pipe = await Pipe.open(self._pool)

    def ask(self, commands: Sequence[Command]) -> asyncio.Future[list[Reply]]:
        assert self._pipe is not None, "after `connect`"
        return self._pipe.ask(commands)

    # Turns

    def channel_of(self, turn_id: str) -> str:
        return self._turns + turn_id

    def follow(self, turn_id: str, told: Callable[[bytes], None]) -> None:
        """Call `on_message` with each message on the turn's channel, and with b"" when
        messages may have been lost."""
        self._followed[turn_id] = told
        if self._hearing is not None:
            self._hearing.say(("SUBSCRIBE", self.channel_of(turn_id)))

    def leave(self, turn_id: str) -> None:
        if self._followed.pop(turn_id, None) and self._hearing is not None:
            self._hearing.say(("UNSUBSCRIBE", self.channel_of(turn_id)))

    def _make_pool(self, url: str) -> ConnectionPool:
        async def on_connect(connection: Connection) -> None:
            self.connected += 1
            await connection.on_connect()

        return ConnectionPool.from_url(
            url,
            socket_timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
            health_check_interval=int(PING),
            redis_connect_func=on_connect,
            protocol=2,  # which a `PipelinedConnection` reads
            # A retry would hide that Redis was unavailable and may have lost data.
            retry=Retry(NoBackoff(), 0),
        )

    # Receiving

    async def _listen(self) -> None:
        pause, warning = 0.1, ThrottledWarning(logger, "no hints from Redis: %s")
        while True:
            try:
                pipe = self._hearing = await Pipe.open(self._pool, self._take)
                channels = [self._hints, *map(self.channel_of, self._followed)]
                pipe.say(("SUBSCRIBE", *channels))
                pause = 0.1
                await _silent(pipe)
            except AWAY as exc:
                warning.log(type(exc).__name__)
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACKOFF)

    def _take(self, reply: Any) -> None:
        match reply:
            case [b"message", channel, data]:
                name = channel.decode()
                if name == self._hints:
                    kind, *ids = data.decode().split(" ")
                    self._heard(kind, ids)
                else:
                    self._tell(name, data)
            case [b"subscribe", channel, _]:
                # Messages published before the subscription were not received.
                self._tell(channel.decode(), b"")

    def _tell(self, channel: str, data: bytes) -> None:
        if told := self._followed.get(channel.removeprefix(self._turns)):
            told(data)


async def _silent(pipe: Pipe) -> None:
    """Never returns; raises RedisConnectionError once Redis does not answer a PING."""
    while True:
        before = pipe.heard_at
        await asyncio.wait([pipe.lost], timeout=PING)
        if pipe.heard_at == before:
            pipe.say(("PING",))
            await asyncio.wait([pipe.lost], timeout=PATIENCE)
            if pipe.heard_at == before:
                pipe.close()
        if pipe.lost.done():
            raise Lost("the connection is gone")
