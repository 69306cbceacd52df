"""Who has a shared conversation open, as far as one open page knows.

Each page announces itself to the others by the channel layer: when it opens, when
another one asks, and again while it lives. Any of these notifications may be lost, and
a process that crashes says nothing, so a page that was not heard of for `FORGOTTEN`
seconds no longer counts. Pure: the consumer sends and receives.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

AGAIN = 30.0  # seconds after which a page announces itself again
FORGOTTEN = 100.0  # seconds
MAX_PAGES = 200  # that a page remembers
MAX_NAMES = 20  # that are shown

HERE, GONE = "presence.here", "presence.gone"


class Presence:
    """The other pages that one open page of a conversation has heard of.

    `name` is the name of the page's own user. `now` is always the time of a
    monotonic clock, in seconds.
    """

    __slots__ = ("_page", "_pages", "_shown", "_told_at", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._page = uuid.uuid4().hex[:12]
        self._pages: dict[str, tuple[str, float]] = {}  # name and time, by page
        self._shown: Sequence[str] = []
        self._told_at = float("-inf")

    def here(self, now: float, *, asks: bool = False) -> dict[str, Any]:
        """The notification that this page is there; `asks` who else is."""
        self._told_at = now
        return {"type": HERE, "page": self._page, "name": self.name, "asks": asks}

    def gone(self) -> dict[str, Any]:
        return {"type": GONE, "page": self._page}

    def is_due(self, now: float) -> bool:
        return now - self._told_at >= AGAIN

    def receive(self, notification: dict[str, Any], now: float) -> bool:
        """Note another page's notification. True if it asks who else is there."""
        page = notification["page"]
        if page == self._page:
            return False
        if notification["type"] == GONE:
            self._pages.pop(page, None)
            return False
        if page in self._pages or len(self._pages) < MAX_PAGES:
            self._pages[page] = notification["name"], now
        return bool(notification["asks"])

    def names(self, now: float) -> Sequence[str]:
        """The names of the others."""
        self._pages = {
            page: (name, at)
            for page, (name, at) in self._pages.items()
            if now - at < FORGOTTEN
        }
        names = sorted({name for name, _ in self._pages.values()} - {self.name})
        return names[:MAX_NAMES]

    def changed_names(self, now: float) -> Sequence[str] | None:
        """The names of the others, if they have changed since the last call."""
        if (names := self.names(now)) == self._shown:
            return None
        self._shown = names
        return names
