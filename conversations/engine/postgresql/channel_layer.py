"""The channel layer of many processes over PostgreSQL: the groups of this process's
pages, and messages to the pages of other processes through the engine's bus.

Each message goes to all processes, which pass it to their pages in its group: messages
are few and short. Without an engine in this process no other process receives them.
"""

from __future__ import annotations

from typing import Any

from conversations.engine.local_channel_layer import LocalLayer
from conversations.engine.postgresql.bus import get_running_bus


class PostgresLayer(LocalLayer):
    """Pages join on the engine's event loop; any loop may send."""

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        if bus := get_running_bus():
            bus.loop.call_soon_threadsafe(bus.send_to_group, group, message)
        await super().group_send(group, message)
