"""The channel layer of many processes: channels_redis, made to tolerate an unavailable
Redis.

Only notifications travel through it, so opening and closing a page never waits for
Redis: channels_redis sends one command after another, and each may take until its
timeout. While Redis is unavailable a page still receives the events of its turns, but
no notification of turns that other tabs open. A page that was opened meanwhile retries
until Redis is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from channels_redis.pubsub import (  # type: ignore[import-untyped]
    RedisPubSubChannelLayer,
)

from conversations.engine.redis.pubsub import REDIS_ERRORS

#: uvloop raises RuntimeError for a connection that was closed a moment ago.
LAYER_ERRORS = (*REDIS_ERRORS, RuntimeError)
PAUSE = 5.0  # seconds between two attempts to add a page to a group
LOG_INTERVAL = 60.0  # seconds between two equal log lines


class RedisChannelLayer(RedisPubSubChannelLayer):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tasks: set[asyncio.Task[None]] = set()

    async def new_channel(self, prefix: str = "specific.") -> str:
        """Created locally: messages reach a channel only through its groups, so Redis
        need not know it."""
        layer = self._get_layer()
        channel = f"{layer.prefix}{prefix}{uuid.uuid4().hex}"
        layer.channels[channel] = asyncio.Queue()
        return channel

    async def receive(self, channel: str) -> Any:
        channels = self._get_layer().channels
        try:
            message = await channels.setdefault(channel, asyncio.Queue()).get()
        except asyncio.CancelledError:  # the page was closed
            channels.pop(channel, None)
            raise
        return self.deserialize(message)

    async def group_add(self, group: str, channel: str) -> None:
        self._run_in_background(self._join(group, channel))

    async def group_discard(self, group: str, channel: str) -> None:
        self._run_in_background(self._get_layer().group_discard(group, channel))

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        with suppress(*LAYER_ERRORS):
            await self._get_layer().group_send(group, message)

    async def _join(self, group: str, channel: str) -> None:
        layer = self._get_layer()
        while channel in layer.channels:  # until the page is closed
            try:
                await layer.group_add(group, channel)
                return
            except LAYER_ERRORS:
                await asyncio.sleep(PAUSE)

    def _run_in_background(self, request: Coroutine[Any, Any, None]) -> None:
        """Send the request in a task, in the order of the calls, without waiting for
        it."""
        task = asyncio.ensure_future(_run_quietly(request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _run_quietly(request: Coroutine[Any, Any, None]) -> None:
    with suppress(*LAYER_ERRORS):
        await request


class RedisOutageFilter(logging.Filter):
    """Shortens the log of an unavailable Redis to one line a minute. channels_redis
    logs it once a second with a whole stack trace."""

    def __init__(self) -> None:
        super().__init__()
        self._quiet_until = 0.0  # time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        exc = record.exc_info[1] if record.exc_info else None
        if not isinstance(exc, REDIS_ERRORS):
            return True
        now = time.monotonic()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + LOG_INTERVAL
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = "no hints for open pages from Redis: %s"
        record.args, record.exc_info = (type(exc).__name__,), None
        return True


logging.getLogger("channels_redis.pubsub").addFilter(RedisOutageFilter())
