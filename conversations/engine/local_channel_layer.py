"""The channel layer of one process with many open pages.

A page of this process needs no channel, that is, no queue and no task that waits for
it: its callback is called directly. So nothing has to look for expired messages, and a
page stays in its groups until it leaves, however long it is open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from channels.layers import InMemoryChannelLayer

OnMessage = Callable[[dict[str, Any]], None]


class LocalLayer(InMemoryChannelLayer):
    def __init__(self) -> None:
        super().__init__()
        self._pages: dict[str, list[OnMessage]] = {}  # by group

    def join(self, group: str, on_message: OnMessage) -> None:
        """Call `on_message` with each message to the group until it leaves."""
        self._pages.setdefault(group, []).append(on_message)

    def leave(self, group: str, on_message: OnMessage) -> None:
        pages = self._pages[group]
        pages.remove(on_message)
        if not pages:
            del self._pages[group]

    def groups_with_pages(self) -> set[str]:
        return set(self._pages)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        self.deliver(group, message)
        await super().group_send(group, message)

    def deliver(self, group: str, message: dict[str, Any]) -> None:
        """Call the pages of this process in the group."""
        for on_message in list(self._pages.get(group, ())):
            on_message(message)
