"""The channel layer of one process, which may have many pages open.

Channels' own looks for what has expired, through all channels and groups, whenever
anybody opens a page or hears a hint: with five hundred open that takes longer than all
else there is to do. Here it looks once a minute. It also takes those from their groups
who joined a day ago, which is what an open page does; whoever leaves says so himself.
"""

from __future__ import annotations

import time

from channels.layers import InMemoryChannelLayer

_LOOK = 60.0  # seconds
_FOR_GOOD = 100 * 365 * 86_400  # seconds


class LocalLayer(InMemoryChannelLayer):
    def __init__(self) -> None:
        super().__init__(group_expiry=_FOR_GOOD)
        self._looks_at = 0.0  # time.monotonic()

    def _clean_expired(self) -> None:
        now = time.monotonic()
        if now >= self._looks_at:
            self._looks_at = now + _LOOK
            super()._clean_expired()
