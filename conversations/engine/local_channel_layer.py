"""The channel layer of one process with many open pages.

Channels' in-memory layer looks for expired messages in all channels and groups whenever
a page is opened or receives a message; with five hundred pages open this takes longer
than everything else. Here it looks once a minute. Channels would also remove a page
from its groups after a day, although it is still open; here a page stays until it
leaves.

A page of this process needs no channel, that is, no queue and no task that waits for
it: its callback is called directly.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from channels.layers import InMemoryChannelLayer

OnMessage = Callable[[dict[str, Any]], None]

_CLEANUP_INTERVAL = 60.0  # seconds
_NEVER = 100 * 365 * 86_400  # seconds


class LocalLayer(InMemoryChannelLayer):
    def __init__(self) -> None:
        super().__init__(group_expiry=_NEVER)
        self._next_cleanup = 0.0  # time.monotonic()
        self._pages: dict[str, list[OnMessage]] = {}  # by group

    def join(self, group: str, on_message: OnMessage) -> None:
        """Call `on_message` with each message to the group until it leaves."""
        self._pages.setdefault(group, []).append(on_message)

    def leave(self, group: str, on_message: OnMessage) -> None:
        pages = self._pages[group]
        pages.remove(on_message)
        if not pages:
            del self._pages[group]

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        for on_message in list(self._pages.get(group, ())):
            on_message(message)
        await super().group_send(group, message)

    def _clean_expired(self) -> None:
        now = time.monotonic()
        if now >= self._next_cleanup:
            self._next_cleanup = now + _CLEANUP_INTERVAL
            super()._clean_expired()
