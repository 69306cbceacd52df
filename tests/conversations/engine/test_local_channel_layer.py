"""Messages reach the pages that joined a group, however long ago, and only those."""

from __future__ import annotations

from typing import Any

from conversations.engine.local_channel_layer import LocalLayer

HINT = {"type": "turn.queued", "turn": "resp_1"}


async def test_a_page_receives_the_messages_of_its_group():
    layer, received = LocalLayer(), list[dict[str, Any]]()
    layer.join("conversation.1", received.append)
    await layer.group_send("conversation.1", HINT)
    await layer.group_send("conversation.2", HINT)
    assert received == [HINT]


async def test_a_page_that_has_left_receives_nothing():
    layer, received, others = LocalLayer(), list[Any](), list[Any]()
    layer.join("conversation.1", received.append)
    layer.join("conversation.1", others.append)
    layer.leave("conversation.1", received.append)
    await layer.group_send("conversation.1", HINT)
    assert (received, others) == ([], [HINT])


async def test_messages_without_receivers_leave_nothing_behind():
    layer = LocalLayer()
    for number in range(20):
        await layer.group_send(f"conversation.{number}", HINT)
    assert layer.channels == {}
    assert layer.groups == {}
