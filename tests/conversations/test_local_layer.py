"""Hints reach who joined, however long ago, and what nobody hears does not pile up."""

from __future__ import annotations

import time
from typing import Any

import pytest
from channels.layers import InMemoryChannelLayer

from conversations.engine.local_channel_layer import LocalLayer

DAY = 86_400
HINT = {"type": "turn.queued", "turn": "resp_1"}


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts all clocks forward, by so many seconds from now."""

    def put(seconds: float) -> None:
        now, ticks = time.time, time.monotonic
        monkeypatch.setattr(time, "time", lambda: now() + seconds)
        monkeypatch.setattr(time, "monotonic", lambda: ticks() + seconds)

    return put


async def test_a_page_that_is_open_for_days_hears_of_turns(ahead):
    layer = LocalLayer()
    page = await layer.new_channel()
    await layer.group_add("conversation.1", page)
    ahead(3 * DAY)
    await layer.group_send("conversation.1", HINT)
    assert await layer.receive(page) == HINT


async def test_who_has_left_hears_nothing():
    layer = LocalLayer()
    page = await layer.new_channel()
    await layer.group_add("conversation.1", page)
    await layer.group_discard("conversation.1", page)
    await layer.group_send("conversation.1", HINT)
    assert layer.channels == {}


async def test_what_nobody_hears_is_dropped(ahead):
    layer = LocalLayer()
    for number in range(20):
        await layer.send(f"specific.gone{number}", HINT)
    ahead(2 * layer.expiry)
    await layer.group_send("conversation.1", HINT)
    assert layer.channels == {}


async def test_many_pages_that_open_do_not_look_through_each_other(monkeypatch):
    looks = 0

    def look(self: InMemoryChannelLayer) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(InMemoryChannelLayer, "_clean_expired", look)
    layer = LocalLayer()
    for number in range(50):
        await layer.group_send(f"conversation.{number}", HINT)
    assert looks == 1
