"""Open pages without a WebSocket, which look for changes every few seconds: who else
has their conversation open, and who sees that they have.

A look makes a page of this process that joins the conversation's group as a WebSocket
does, and that ends when no look has come for some time. Looks that reach several
processes make a page in each, with the same name.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from channels.layers import get_channel_layer

from conversations.engine.notifications import group_of
from conversations.http.presence import GONE, HERE, Presence

#: Seconds without a look after which a page is gone; hidden pages look once a minute.
GONE_AFTER = 75.0
MAX_PAGES = 2000  # of a process


class _Page:
    def __init__(self, layer: Any, conversation_id: str, name: str) -> None:
        self.presence = Presence(name)
        self.looked_at = 0.0
        self._layer = layer
        self._group = group_of(conversation_id)
        self._answers: set[asyncio.Task[None]] = set()
        layer.join(self._group, self._receive)

    async def tell(self, notification: dict[str, Any]) -> None:
        await self._layer.group_send(self._group, notification)

    def leave(self) -> None:
        self._layer.leave(self._group, self._receive)

    def _receive(self, notification: dict[str, Any]) -> None:
        if notification["type"] not in (HERE, GONE):
            return
        now = time.monotonic()
        if self.presence.receive(notification, now):
            answer = asyncio.ensure_future(self.tell(self.presence.here(now)))
            self._answers.add(answer)
            answer.add_done_callback(self._answers.discard)


class LookingPages:
    """Of one process. Its methods run on the event loop."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, int], _Page] = {}  # the longest silent first

    async def look(
        self, conversation_id: str, user_id: int, name: str
    ) -> Sequence[str]:
        """Names of the other people who have the conversation open."""
        now = time.monotonic()
        await self._end_silent(now)
        key = (conversation_id, user_id)
        page = self._pages.pop(key, None)
        is_new = page is None
        if page is None:
            layer = get_channel_layer()
            if layer is None or len(self._pages) >= MAX_PAGES:
                return []
            page = _Page(layer, conversation_id, name)
        page.looked_at = now
        self._pages[key] = page
        if is_new or page.presence.is_due(now):
            await page.tell(page.presence.here(now, asks=is_new))
        return page.presence.names(now)

    async def _end_silent(self, now: float) -> None:
        while self._pages:
            key = next(iter(self._pages))
            page = self._pages[key]
            if now - page.looked_at < GONE_AFTER:
                return
            del self._pages[key]
            page.leave()
            await page.tell(page.presence.gone())


looking_pages = LookingPages()
