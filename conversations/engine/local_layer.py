"""The channel layer of one process, which may have many pages open.

Channels' own looks for what has expired, through all channels and groups, whenever
anybody opens a page or hears a hint: with five hundred open that takes longer than all
else there is to do. Here it looks once a minute. It also takes those from their groups
who joined a day ago, which is what an open page does; whoever leaves says so himself.

A page that is open here needs no channel, which is a queue and a task that waits at it:
it is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from channels.layers import InMemoryChannelLayer

Hear = Callable[[dict[str, Any]], None]

_LOOK = 60.0  # seconds
_FOR_GOOD = 100 * 365 * 86_400  # seconds


class LocalLayer(InMemoryChannelLayer):
    def __init__(self) -> None:
        super().__init__(group_expiry=_FOR_GOOD)
        self._looks_at = 0.0  # time.monotonic()
        self._pages: dict[str, list[Hear]] = {}  # by group

    def join(self, group: str, hear: Hear) -> None:
        """`hear` is called with what is sent to the group, until it leaves."""
        self._pages.setdefault(group, []).append(hear)

    def leave(self, group: str, hear: Hear) -> None:
        pages = self._pages[group]
        pages.remove(hear)
        if not pages:
            del self._pages[group]

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        for hear in list(self._pages.get(group, ())):
            hear(message)
        await super().group_send(group, message)

    def _clean_expired(self) -> None:
        now = time.monotonic()
        if now >= self._looks_at:
            self._looks_at = now + _LOOK
            super()._clean_expired()
