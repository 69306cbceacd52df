"""The channel layer of many processes: channels_redis, which may be without its Redis.

Only hints travel through it. So a page opens and closes at once, whatever Redis does:
channels_redis asks it one thing after another, and each may take until its time is up.
Where Redis is away a page is told its turns; it is not told of turns that other tabs
open meanwhile. One that was opened meanwhile asks until Redis is back.
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

from conversations.engine.bus import AWAY

#: uvloop says RuntimeError of a connection that has been closed a moment ago.
LOST = (*AWAY, RuntimeError)
PAUSE = 5.0  # seconds between two tries to have a page told
QUIET = 60.0  # seconds between two lines of the log that say the same


class Layer(RedisPubSubChannelLayer):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tasks: set[asyncio.Task[None]] = set()

    async def new_channel(self, prefix: str = "specific.") -> str:
        """Nobody sends to it but by its groups, of which Redis need not know."""
        layer = self._get_layer()
        channel = f"{layer.prefix}{prefix}{uuid.uuid4().hex}"
        layer.channels[channel] = asyncio.Queue()
        return channel

    async def receive(self, channel: str) -> Any:
        channels = self._get_layer().channels
        try:
            message = await channels.setdefault(channel, asyncio.Queue()).get()
        except asyncio.CancelledError:  # it is closed
            channels.pop(channel, None)
            raise
        return self.deserialize(message)

    async def group_add(self, group: str, channel: str) -> None:
        self._keep(self._join(group, channel))

    async def group_discard(self, group: str, channel: str) -> None:
        self._keep(self._get_layer().group_discard(group, channel))

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        with suppress(*LOST):
            await self._get_layer().group_send(group, message)

    async def _join(self, group: str, channel: str) -> None:
        layer = self._get_layer()
        while channel in layer.channels:  # else the page is closed already
            try:
                await layer.group_add(group, channel)
                return
            except LOST:
                await asyncio.sleep(PAUSE)

    def _keep(self, asking: Coroutine[Any, Any, None]) -> None:
        """Ask Redis, in the order in which this is called, and wait for nothing."""
        task = asyncio.ensure_future(_ask(asking))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _ask(asking: Coroutine[Any, Any, None]) -> None:
    with suppress(*LOST):
        await asking


class OneLine(logging.Filter):
    """channels_redis tells once a second that Redis is away, each time with its whole
    stack. That it is so is said once a minute, and in one line."""

    def __init__(self) -> None:
        super().__init__()
        self._quiet_until = 0.0  # time.monotonic()

    def filter(self, record: logging.LogRecord) -> bool:
        exc = record.exc_info[1] if record.exc_info else None
        if not isinstance(exc, AWAY):
            return True
        now = time.monotonic()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + QUIET
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = "no hints for open pages from Redis: %s"
        record.args, record.exc_info = (type(exc).__name__,), None
        return True


logging.getLogger("channels_redis.pubsub").addFilter(OneLine())
