"""The one connection of a process that hears what others publish, and the pool for all
else it asks of Redis.

What is published are hints, `<kind> <id> <id> ...` on one channel. They may be lost:
whoever depends on one looks for itself from time to time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Connection, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from conversations.engine.ending import end

logger = logging.getLogger(__name__)

AWAY = (RedisError, OSError, TimeoutError)
PATIENCE = 3.0  # seconds for an answer of Redis
PING = 5  # seconds of silence after which the connection is tried
BACKOFF = 1.0  # seconds at the most between two tries

Heard = Callable[[str, list[str]], None]


class Bus:
    """`heard` is called for every hint, `missed` when some may have been lost."""

    def __init__(self, url: str, heard: Heard, missed: Callable[[], None]) -> None:
        # Redis' databases share their channels.
        self._channel = f"parley:hints:{urlsplit(url).path.strip('/') or 0}"
        self._heard = heard
        self._missed = missed
        self.connected = 0  # times a connection was made: what was said may be gone
        self.redis = Redis(connection_pool=self._pool(url))
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._listen())

    async def close(self) -> None:
        await end([self._task])
        with suppress(*AWAY):
            await self.redis.aclose()
            await self.redis.connection_pool.disconnect()

    async def say(self, kind: str, *ids: str) -> None:
        with suppress(*AWAY):
            await self.redis.publish(self._channel, self.hint(kind, ids))

    @property
    def channel(self) -> str:
        return self._channel

    @staticmethod
    def hint(kind: str, ids: Any) -> bytes:
        return " ".join([kind, *ids]).encode()

    def _pool(self, url: str) -> ConnectionPool:
        async def on_connect(connection: Connection) -> None:
            self.connected += 1
            await connection.on_connect()

        return ConnectionPool.from_url(
            url,
            socket_timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
            health_check_interval=PING,
            redis_connect_func=on_connect,
            # A retry would hide that Redis was away, and may have forgotten.
            retry=Retry(NoBackoff(), 0),
        )

    async def _listen(self) -> None:
        pause, is_away = 0.1, False
        while True:
            try:
                async with self.redis.pubsub(ignore_subscribe_messages=True) as pubsub:
                    await pubsub.subscribe(self._channel)
                    self._missed()
                    pause, is_away = 0.1, False
                    while True:
                        await self._take(pubsub)
            except AWAY as exc:
                if not is_away:
                    logger.warning("no hints from Redis: %s", type(exc).__name__)
                is_away = True
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACKOFF)

    async def _take(self, pubsub: Any) -> None:
        get: Awaitable[Any] = pubsub.get_message(timeout=PING)
        message = await get
        if message and message["type"] == "message":
            kind, *ids = message["data"].decode().split(" ")
            self._heard(kind, ids)
