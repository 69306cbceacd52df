"""Hints for open pages, through the channel layer. Nothing depends on their arrival."""

from __future__ import annotations

import logging

from channels.layers import get_channel_layer

logger = logging.getLogger(__name__)


def group_of(conversation_id: str) -> str:
    """The channel-layer group of hints about a conversation."""
    return f"conversation.{conversation_id}"


async def announce(conversation_id: str, turn_id: str) -> None:
    """A turn was opened in the conversation."""
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(
            group_of(conversation_id), {"type": "turn.queued", "turn": turn_id}
        )
