"""Hints for open pages, through the channel layer, and for what other processes keep in
memory, through the engine. Nothing depends on their arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from channels.layers import get_channel_layer

#: Open pages of this process, by conversation.
listeners: Counter[str] = Counter()


def left(conversation_id: str) -> None:
    """A listener is gone."""
    listeners[conversation_id] -= 1
    if not listeners[conversation_id]:
        del listeners[conversation_id]


def group_of(conversation_id: str) -> str:
    """The channel-layer group of hints about a conversation."""
    return f"conversation.{conversation_id}"


def group_of_user(user_id: int) -> str:
    """The channel-layer group of hints about a user's list of conversations."""
    return f"user.{user_id}"


async def announce_title(user_id: int, conversation_id: str) -> None:
    """A conversation of the user's has another title."""
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(
            group_of_user(user_id),
            {"type": "conversation.renamed", "conversation": conversation_id},
        )


async def announce(conversation_id: str, turn_id: str) -> None:
    """A turn was opened in the conversation."""
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(
            group_of(conversation_id), {"type": "turn.queued", "turn": turn_id}
        )


_listeners: dict[str, list[Callable[[], None]]] = {}


def on(kind: str, act: Callable[[], None]) -> None:
    """Have `act` called when another process says `kind`, see `engine.tell`."""
    _listeners.setdefault(kind, []).append(act)


def heard(kind: str) -> None:
    for act in _listeners.get(kind, ()):
        act()
