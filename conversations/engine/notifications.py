"""Notifications for open pages, through the channel layer, and for the caches of other
processes, through the engine. Any of them may be lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from channels.layers import get_channel_layer

#: Open pages of this process, by conversation.
open_pages: Counter[str] = Counter()


def remove_open_page(conversation_id: str) -> None:
    """Count one open page less."""
    open_pages[conversation_id] -= 1
    if not open_pages[conversation_id]:
        del open_pages[conversation_id]


def group_of(conversation_id: str) -> str:
    """The channel-layer group for notifications about a conversation."""
    return f"conversation.{conversation_id}"


def group_of_user(user_id: int) -> str:
    """The channel-layer group for notifications about a user's list of
    conversations."""
    return f"user.{user_id}"


async def announce_title(user_id: int, conversation_id: str) -> None:
    """Tell the open pages of its owner, and of who takes part, that a conversation has
    a new title. The owner's are told once: those of other conversations list it too."""
    layer = get_channel_layer()
    if layer is not None:
        renamed = {"type": "conversation.renamed", "conversation": conversation_id}
        await layer.group_send(group_of_user(user_id), renamed)
        shared = {**renamed, "owner": user_id}
        await layer.group_send(group_of(conversation_id), shared)


async def announce_turn(conversation_id: str, turn_id: str) -> None:
    """Tell the conversation's open pages that a turn was opened."""
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(
            group_of(conversation_id), {"type": "turn.queued", "turn": turn_id}
        )


async def announce_queue(conversation_id: str) -> None:
    """Tell the conversation's open pages that its waiting messages have changed."""
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(group_of(conversation_id), {"type": "queue.changed"})


async def announce_decision(conversation_id: str, question_id: str) -> None:
    """Tell the conversation's open pages that a person has answered a question. The
    turn may wait for more answers, and has no events until then."""
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(
            group_of(conversation_id), {"type": "question.decided", "id": question_id}
        )


async def announce_branches(conversation_id: str) -> None:
    """Tell the conversation's open pages that its branches have changed."""
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(group_of(conversation_id), {"type": "branches.changed"})


_callbacks: dict[str, list[Callable[[], None]]] = {}
#: Functions that pass a kind on to the gateway processes of the embedded delivery.
relays: list[Callable[[str], None]] = []


def on(kind: str, act: Callable[[], None]) -> None:
    """Call `act` when another process publishes `kind`; see
    `engine.publish_notification`."""
    _callbacks.setdefault(kind, []).append(act)


def dispatch(kind: str) -> None:
    for act in _callbacks.get(kind, ()):
        act()
