"""Interface of the notifications between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

OnNotification = Callable[[str, list[str]], None]


class Bus(Protocol):
    """Notifications for all processes, this one among them. Any may be lost."""

    def start(self) -> None: ...

    async def close(self) -> None: ...

    async def publish_notification(self, kind: str, *ids: str) -> None: ...
