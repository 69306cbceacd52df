"""Notifications between processes by PostgreSQL's LISTEN and NOTIFY.

One connection listens; another executes the statements of the event log and sends
notifications. PostgreSQL delivers a NOTIFY to all listening processes, and takes a lock
of the whole database at its commit. So this process collects notifications and sends
them at most twenty times a second; only the publisher announces turns with each of its
writes. A payload has ids only. It may be lost, so every receiver also polls.

Source: https://www.postgresql.org/docs/15/sql-notify.html
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import orjson
from channels.layers import get_channel_layer
from psycopg import AsyncConnection

from conversations.engine.database.listening import read_notices
from conversations.engine.local_channel_layer import LocalLayer
from conversations.engine.postgresql.connection import StatementConnection
from conversations.engine.process.task_shutdown import cancel_and_wait
from conversations.engine.shared_log.bus import OnNotification
from conversations.throttled_warning import ThrottledWarning
from llm.db.connection_parameters import short_parameters

logger = logging.getLogger(__name__)

EVENTS = "parley_events"  # ids of turns that have new events
NOTIFICATIONS = "parley_notifications"  # `<kind> <id> <id> ...`
GROUPS = "parley_groups"  # messages of the channel layer, as JSON
MAX_PAYLOAD = 7900  # bytes; PostgreSQL allows 7999
PAUSE = 0.05  # seconds for which notifications are collected
BACKOFF = 1.0  # seconds; longest pause between two attempts to connect

_SEND = """
SELECT pg_notify(message.channel, message.payload) FROM
unnest(%(channels)s::text[], %(payloads)s::text[]) AS message(channel, payload)
"""


class PostgresBus:
    """Calls `on_notification` for every notification received."""

    def __init__(self, on_notification: OnNotification) -> None:
        self.statements = StatementConnection()
        self.loop = asyncio.get_running_loop()
        self.on_events: Callable[[Sequence[str] | None], None] = lambda turn_ids: None
        self._name = uuid.uuid4().hex  # by which this process skips its own messages
        self._on_notification = on_notification
        self._outgoing: list[tuple[str, str]] = []  # channels and payloads
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._receive_warning = ThrottledWarning(
            logger, "notifications cannot be read from PostgreSQL: %s"
        )
        self._dispatch_warning = ThrottledWarning(logger, "a notification failed: %s")
        self._send_warning = ThrottledWarning(
            logger, "notifications cannot be sent through PostgreSQL: %s"
        )

    def start(self) -> None:
        self._tasks = [
            asyncio.ensure_future(self._listen_loop()),
            asyncio.ensure_future(self._send_loop()),
        ]
        _running.append(self)

    async def close(self) -> None:
        if self in _running:
            _running.remove(self)
        await cancel_and_wait(self._tasks)
        if self._outgoing:
            await self._send()
        await self.statements.close()

    # Sending

    async def publish_notification(self, kind: str, *ids: str) -> None:
        self._queue(NOTIFICATIONS, " ".join([kind, *ids]))

    def send_to_group(self, group: str, message: dict[str, Any]) -> None:
        """Send a message of the channel layer to the other processes."""
        payload = orjson.dumps([self._name, group, message]).decode()
        self._queue(GROUPS, payload)

    def _queue(self, channel: str, payload: str) -> None:
        if len(payload.encode()) > MAX_PAYLOAD:
            logger.error("a notification is too long for PostgreSQL")
            return
        self._outgoing.append((channel, payload))
        self._work.set()

    async def _send_loop(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            await self._send()
            await asyncio.sleep(PAUSE)

    async def _send(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        channels, payloads = zip(*dict.fromkeys(outgoing), strict=True)
        parameters = {"channels": [*channels], "payloads": [*payloads]}
        try:
            await self.statements.fetch(_SEND, parameters)
        except Exception as exc:  # lost, and found by the receivers' polling
            self._send_warning.log(type(exc).__name__)

    # Receiving

    async def _listen_loop(self) -> None:
        pause = 0.1
        while True:
            began = self.loop.time()
            try:
                await self._listen()
            except Exception as exc:  # else the process would never hear of one again
                self._receive_warning.log(type(exc).__name__)
            if self.loop.time() - began > BACKOFF:
                pause = 0.1
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACKOFF)

    async def _listen(self) -> None:
        """Raises psycopg's errors when the connection ends."""
        async with await AsyncConnection.connect(
            **short_parameters("listener"), autocommit=True
        ) as listening:
            listening.add_notify_handler(lambda n: self._receive(n.channel, n.payload))
            for channel in (EVENTS, NOTIFICATIONS, GROUPS):
                await listening.execute(f"LISTEN {channel}".encode())
            self.on_events(None)  # announcements before LISTEN were not received
            await read_notices(listening, self._receive)

    def _receive(self, channel: str, payload: str) -> None:
        try:
            self.dispatch(channel, payload)
        except Exception as exc:
            self._dispatch_warning.log(type(exc).__name__, exc_info=exc)

    def dispatch(self, channel: str, payload: str) -> None:
        if channel == EVENTS:
            self.on_events(payload.split(" "))
        elif channel == NOTIFICATIONS:
            kind, *ids = payload.split(" ")
            self._on_notification(kind, ids)
        elif channel == GROUPS:
            sender, group, message = orjson.loads(payload)
            if sender != self._name:  # `group_send` has delivered it here
                _deliver_to_pages(group, message)


def _deliver_to_pages(group: str, message: dict[str, Any]) -> None:
    layer = get_channel_layer()
    if isinstance(layer, LocalLayer):
        layer.deliver(group, message)


_running: list[PostgresBus] = []  # the bus of this process's engine, if it runs


def get_running_bus() -> PostgresBus | None:
    """The bus of this process's engine; None without an engine. Thread-safe."""
    return _running[-1] if _running else None


def build_event_payloads(turn_ids: Iterable[str]) -> Iterator[str]:
    """Yield payloads of at most MAX_PAYLOAD that announce new events of these turns."""
    payload = ""
    for turn_id in turn_ids:
        if len(payload) + 1 + len(turn_id) > MAX_PAYLOAD:
            yield payload
            payload = ""
        payload = f"{payload} {turn_id}" if payload else turn_id
    if payload:
        yield payload
