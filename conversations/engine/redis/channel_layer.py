"""The channel layer of many processes: the groups of this process's pages, and
channels_redis between processes, made to tolerate an unavailable Redis.

Only notifications travel through it, so opening and closing a page never waits for
Redis: channels_redis sends one command after another, and each may take until its
timeout. While Redis is unavailable a page still receives the events of its turns, but
no notification of turns that other tabs open.

Each process has one channel of channels_redis. A task adds it to the groups in which
the process has pages, and retries until Redis is back. A message names its group, so
that the process can pass it to those pages.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import Any

from channels_redis.pubsub import (  # type: ignore[import-untyped]
    RedisPubSubChannelLayer,
)

from conversations.engine.local_channel_layer import LocalLayer, OnMessage
from conversations.engine.process.task_shutdown import cancel_and_wait
from conversations.engine.redis.pubsub import REDIS_ERRORS
from conversations.throttled_warning import ThrottledWarning

logger = logging.getLogger(__name__)

PAUSE = 5.0  # seconds between two attempts to join groups
_GROUP = "parley.group"  # key of a message
LOG_INTERVAL = 60.0  # seconds between two equal log lines


class RedisChannelLayer(LocalLayer):
    """`options` are those of channels_redis. Pages join on one event loop, a later one
    once that is closed; any loop may send."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._redis = RedisPubSubChannelLayer(**options)
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._outage = ThrottledWarning(
            logger, "notifications for open pages cannot pass through Redis: %s"
        )
        self._fault = ThrottledWarning(
            logger, "a notification for open pages failed: %s"
        )
        self._reset()

    def _reset(self) -> None:
        self._channel = f"parley.{uuid.uuid4().hex}"  # of this process
        self._joined: set[str] = set()  # groups that the channel is in
        self._has_changed = asyncio.Event()

    def join(self, group: str, on_message: OnMessage) -> None:
        super().join(group, on_message)
        loop = asyncio.get_running_loop()
        if not self._is_running_on(loop):
            for task in self._tasks:
                if task.get_loop() is loop:
                    task.cancel()
            self._reset()
            self._tasks = (
                loop.create_task(self._receive_loop()),
                loop.create_task(self._join_loop()),
            )
        self._has_changed.set()

    def _is_running_on(self, loop: asyncio.AbstractEventLoop) -> bool:
        return bool(self._tasks) and not any(
            task.done() or task.get_loop() is not loop for task in self._tasks
        )

    def leave(self, group: str, on_message: OnMessage) -> None:
        super().leave(group, on_message)
        self._has_changed.set()

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        try:
            await self._redis.group_send(group, {**message, _GROUP: group})
        except Exception as exc:
            self._report(exc)

    async def close(self) -> None:
        tasks, self._tasks = self._tasks, ()
        await cancel_and_wait(tasks)
        try:
            await self._redis.flush()
        except Exception as exc:
            self._report(exc)

    def _report(self, exc: Exception) -> None:
        """Log why notifications were lost. Callers continue without them."""
        if _is_outage(exc):
            self._outage.log(type(exc).__name__)
        else:
            self._fault.log(type(exc).__name__, exc_info=exc)

    async def _receive_loop(self) -> None:
        while True:
            try:
                message = await self._redis.receive(self._channel)
            except Exception as exc:
                self._report(exc)
                await asyncio.sleep(PAUSE)
                continue
            try:
                if group := message.pop(_GROUP, ""):  # "" from an older release
                    await super().group_send(group, message)
            except Exception as exc:
                self._report(exc)

    async def _join_loop(self) -> None:
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()
            try:
                await self._update_groups()
            except Exception as exc:
                self._report(exc)
                self._has_changed.set()
                await asyncio.sleep(PAUSE)

    async def _update_groups(self) -> None:
        for group in self.groups_with_pages() - self._joined:
            await self._redis.group_add(group, self._channel)
            self._joined.add(group)
        for group in self._joined - self.groups_with_pages():
            await self._redis.group_discard(group, self._channel)
            self._joined.discard(group)


def _is_outage(exc: Exception) -> bool:
    """uvloop raises RuntimeError for a connection that was closed a moment ago."""
    is_closed = isinstance(exc, RuntimeError) and "closed" in str(exc)
    return is_closed or isinstance(exc, REDIS_ERRORS)


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
        record.msg = "notifications for open pages cannot be read from Redis: %s"
        record.args, record.exc_info = (type(exc).__name__,), None
        return True


logging.getLogger("channels_redis.pubsub").addFilter(RedisOutageFilter())
