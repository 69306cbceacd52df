"""The channel layer of many processes: channels_redis, which may be without its Redis.

Only hints travel through it. So where Redis is away a page opens all the same, and is
told its turns; it is not told of turns that other tabs open meanwhile.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import Any

from channels_redis.pubsub import (  # type: ignore[import-untyped]
    RedisPubSubChannelLayer,
)

from conversations.engine.bus import AWAY


class Layer(RedisPubSubChannelLayer):
    async def new_channel(self, prefix: str = "specific.") -> str:
        layer = self._get_layer()
        channel = f"{layer.prefix}{prefix}{uuid.uuid4().hex}"
        with suppress(*AWAY):
            await layer._subscribe_to_channel(channel)
        return channel

    async def group_add(self, group: str, channel: str) -> None:
        with suppress(*AWAY):
            await self._get_layer().group_add(group, channel)

    async def group_discard(self, group: str, channel: str) -> None:
        with suppress(*AWAY):
            await self._get_layer().group_discard(group, channel)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        with suppress(*AWAY):
            await self._get_layer().group_send(group, message)
