"""Presence of pages that poll instead of holding a WebSocket.

The first poll that a process gets makes a page, which joins the conversation's group as
a WebSocket does. The page ends when no poll has come for some time, or when its user's
session, token or participation does. Polls that reach several processes make a page in
each, with the same name.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context
from typing import Any

from channels.layers import get_channel_layer

from conversations.engine.connection_revocation import Credential, open_connections
from conversations.engine.notifications import group_of
from conversations.http.presence import GONE, HERE, Presence
from llm.concurrency.per_loop import PerLoop

logger = logging.getLogger(__name__)

#: Seconds without a poll after which a page is gone; hidden pages poll once a minute.
GONE_AFTER = 75.0
MAX_PAGES = 2000  # of a process


class _Page:
    """`on_end` is called once, when the page ends."""

    def __init__(
        self,
        layer: Any,
        conversation_id: str,
        credential: Credential,
        on_end: Callable[[], None],
    ) -> None:
        self._presence = Presence(credential.name)
        self._layer = layer
        self._group = group_of(conversation_id)
        self._on_end = on_end
        self._sending: set[asyncio.Task[None]] = set()
        layer.join(self._group, self._receive)
        self._unregister = open_connections().add(
            credential, self._end, is_watcher=True
        )
        self._send(self._presence.here(time.monotonic(), asks=True))
        self._wait_again()

    def poll(self) -> Sequence[str]:
        """Names of the others, as far as they have answered."""
        self._timer.cancel()
        self._wait_again()
        now = time.monotonic()
        if self._presence.is_due(now):
            self._send(self._presence.here(now))
        return self._presence.names(now)

    def _wait_again(self) -> None:
        # An empty context: the caller's may reference a whole request.
        self._timer = asyncio.get_running_loop().call_later(
            GONE_AFTER, self._end, context=Context()
        )

    def _end(self) -> None:
        self._timer.cancel()
        self._unregister()
        self._layer.leave(self._group, self._receive)
        self._on_end()
        self._send(self._presence.gone())

    def _receive(self, notification: dict[str, Any]) -> None:
        if notification["type"] not in (HERE, GONE):
            return
        now = time.monotonic()
        if self._presence.receive(notification, now):
            self._send(self._presence.here(now))

    def _send(self, notification: dict[str, Any]) -> None:
        sending: Coroutine[Any, Any, None]
        sending = self._layer.group_send(self._group, notification)
        task = asyncio.get_running_loop().create_task(sending, context=Context())
        self._sending.add(task)
        task.add_done_callback(self._note_sent)

    def _note_sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("presence was not sent: %s", type(error).__name__)


class PollingPages:
    """Of one event loop."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, int], _Page] = {}

    def poll(
        self, conversation_id: str, credential: Credential
    ) -> Sequence[str] | None:
        """Names of the other people who have the conversation open; None where they
        are not known yet, none where this process has too many pages to know."""
        key = (conversation_id, credential.user_id)
        if (page := self._pages.get(key)) is not None:
            return page.poll()
        layer = get_channel_layer()
        if len(self._pages) >= MAX_PAGES:
            return []
        if layer is not None:
            self._pages[key] = _Page(
                layer, conversation_id, credential, lambda: self._forget(key)
            )
        return None

    def _forget(self, key: tuple[str, int]) -> None:
        del self._pages[key]


pages = PerLoop(PollingPages)


async def poll(conversation_id: str, credential: Credential) -> Sequence[str] | None:
    """Poll this process's page; see `PollingPages.poll`."""
    return pages().poll(conversation_id, credential)
