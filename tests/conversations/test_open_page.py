"""The WebSocket of an open page: one message after another, and hints in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import orjson
import pytest
from channels.layers import get_channel_layer

from conversations import engine
from conversations.engine import notifications
from conversations.engine.event_log import Entry, Position
from conversations.engine.notifications import announce_turn
from conversations.models import Conversation
from conversations.streaming import consumers
from conversations.streaming.consumers import ConversationConsumer


class Page:
    """What the browser says, and is told."""

    def __init__(self, conversation: Conversation) -> None:
        self.says: asyncio.Queue[Any] = asyncio.Queue()
        self.told: asyncio.Queue[Any] = asyncio.Queue()
        kwargs = {"conversation_id": conversation.pk}
        scope = {"headers": [], "url_route": {"args": (), "kwargs": kwargs}}
        self.consumer = ConversationConsumer()
        serving = self.consumer(scope, self.says.get, self.told.put)
        self.serving = asyncio.ensure_future(serving)

    async def open(self) -> Page:
        self.say({"type": "websocket.connect"})
        assert (await self.told.get())["type"] == "websocket.accept"
        return self

    def say(self, message: Any) -> None:
        self.says.put_nowait(message)

    async def hears(self) -> Any:
        async with asyncio.timeout(20):
            return orjson.loads((await self.told.get())["text"])

    async def leave(self) -> None:
        self.say({"type": "websocket.disconnect", "code": 1001})
        await self.serving


@pytest.fixture
def running(
    running: None, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "user_from_session", lambda _: conversation.owner)
    monkeypatch.setattr(notifications, "open_pages", Counter())


pytestmark = pytest.mark.django_db(transaction=True)


async def test_all_pages_of_a_conversation_hear_of_a_turn(conversation, running):
    pages = [await Page(conversation).open() for _ in range(2)]
    await announce_turn(conversation.pk, "resp_1")
    for page in pages:
        queued = {"type": "parley:turn.queued", "turn": "resp_1"}
        assert await page.hears() == queued
    for page in pages:
        await page.leave()


async def test_hints_wait_for_the_handler_under_way(conversation, running, monkeypatch):
    page = await Page(conversation).open()
    is_in, go_on = asyncio.Event(), asyncio.Event()

    async def slow(content: Any, **more: Any) -> None:
        is_in.set()
        await go_on.wait()
        await page.consumer.send_json({"type": "handled"})

    monkeypatch.setattr(page.consumer, "receive_json", slow)
    page.say({"type": "websocket.receive", "text": "{}"})
    await is_in.wait()
    for number in range(3):
        await announce_turn(conversation.pk, f"resp_{number}")
    assert page.told.empty()
    go_on.set()
    heard = [await page.hears() for _ in range(4)]
    assert [each.get("turn") for each in heard] == [None, "resp_0", "resp_1", "resp_2"]
    await page.leave()


@pytest.mark.parametrize("is_cut_off", [False, True])
async def test_a_page_that_is_gone_leaves_nothing(conversation, running, is_cut_off):
    before = asyncio.all_tasks()
    page = await Page(conversation).open()
    assert notifications.open_pages[conversation.pk] == 1
    if is_cut_off:
        page.serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await page.serving
    else:
        await page.leave()
    assert notifications.open_pages == {}
    layer: Any = get_channel_layer()
    assert layer._pages == layer.groups == layer.channels == {}
    await announce_turn(conversation.pk, "resp_1")
    assert page.told.empty()
    assert asyncio.all_tasks() == before


async def test_who_goes_while_being_told_is_told_no_more(monkeypatch):
    async def told(*_: Any):
        yield [Entry.of("resp_1", Position(1, 0), {"type": "response.created"})]
        raise AssertionError("nobody is there")

    async def send(_: Any) -> None:
        raise RuntimeError("websocket.send after websocket.close")  # as uvicorn does

    monkeypatch.setattr(engine, "subscribe", told)
    consumer = ConversationConsumer()
    consumer._subscriptions, consumer.base_send = {}, send
    await consumer._forward("resp_1", None)
