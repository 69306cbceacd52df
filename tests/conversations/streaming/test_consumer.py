"""The WebSocket of an open page: one message after another, and hints in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.utils import timezone, translation

from conversations import engine
from conversations.access import maintenance
from conversations.access.errors import UnderMaintenance
from conversations.access.maintenance import Notice
from conversations.engine import notifications, subscriptions
from conversations.engine.event_log import Entry, Position
from conversations.engine.finished_turn_events import replay
from conversations.engine.notifications import announce_turn, group_of
from conversations.engine.packed_events import LARGE_EVENT
from conversations.models import Conversation, Maintenance, Participant, Turn
from conversations.models.user_settings import UserSettings
from conversations.streaming import consumers, conversation_access
from conversations.streaming.consumers import ConversationConsumer
from conversations.streaming.turn_subscriptions import TurnSubscriptions
from llm.error_texts import english_texts
from llm.wire.deltas import TextDelta
from llm.wire.items import user_message
from llm.wire.websocket_frame import frame
from tests.conversations.scene import a_finished_turn, a_user


class Page:
    """The messages that the browser sends and receives."""

    def __init__(self, conversation: Conversation, languages: str = "") -> None:
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        kwargs = {"conversation_id": conversation.pk}
        headers = [(b"accept-language", languages.encode())]
        scope = {"headers": headers, "url_route": {"args": (), "kwargs": kwargs}}
        self.consumer = ConversationConsumer()
        serving = self.consumer(scope, self.inbox.get, self.sent.put)
        self.serving = asyncio.ensure_future(serving)

    async def open(self) -> Page:
        self.say({"type": "websocket.connect"})
        assert (await self.sent.get())["type"] == "websocket.accept"
        return self

    def say(self, message: Any) -> None:
        self.inbox.put_nowait(message)

    def ask(self, **message: Any) -> None:
        self.say({"type": "websocket.receive", "text": orjson.dumps(message).decode()})

    async def hears(self) -> Any:
        async with asyncio.timeout(20):
            return orjson.loads((await self.sent.get())["text"])

    async def leave(self) -> None:
        self.say({"type": "websocket.disconnect", "code": 1001})
        await self.serving


@pytest.fixture
def running(
    running: None, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (consumers, conversation_access):
        monkeypatch.setattr(module, "user_from_session", lambda _: conversation.owner)
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


@pytest.mark.parametrize(
    "text",
    [
        r'{"type": "turn.create", "key": "k1", "input": "half \ud83d"}',
        r'{"type": "turn.create", "key": "k1", "input": "a NUL: \u0000"}',
        '{"type": "turn.create", "key": "k1", "a": ' + "[" * 200 + "]" * 200 + "}",
    ],
    ids=["half a pair", "NUL", "too deep"],
)
async def test_a_message_refused_unread_is_refused_by_its_key(
    conversation, running, text
):
    page = await Page(conversation).open()
    page.say({"type": "websocket.receive", "text": text})
    heard = await page.hears()
    assert (heard["type"], heard["key"]) == ("error", "k1")
    await page.leave()


async def test_who_follows_a_turn_that_is_gone_hears_which(conversation, running):
    page = await Page(conversation).open()
    page.ask(type="turn.follow", turn="resp_gone")
    heard = await page.hears()
    assert (heard["turn"], heard.get("position")) == ("resp_gone", None)
    page.ask(type="turn.cancel", turn="resp_gone", key="resp_gone")
    heard = await page.hears()
    assert ("turn" in heard, heard["key"]) == (False, "resp_gone")
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
    assert page.sent.empty()
    go_on.set()
    heard = [await page.hears() for _ in range(4)]
    assert [each.get("turn") for each in heard] == [None, "resp_0", "resp_1", "resp_2"]
    await page.leave()


@pytest.mark.parametrize("is_cut_off", [False, True])
async def test_a_closed_page_leaves_nothing_behind(conversation, running, is_cut_off):
    layer: Any = get_channel_layer()
    before = asyncio.all_tasks()
    before_groups = {name: {**channels} for name, channels in layer.groups.items()}
    page = await Page(conversation).open()
    assert notifications.open_pages[conversation.pk] == 1
    if is_cut_off:
        page.serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await page.serving
    else:
        await page.leave()
    assert notifications.open_pages == {}
    assert layer.groups == before_groups
    await announce_turn(conversation.pk, "resp_1")
    assert page.sent.empty()
    assert asyncio.all_tasks() == before


class SocketClosed(OSError):
    """As uvicorn's ClientDisconnected."""


async def test_a_page_that_closes_while_its_message_is_handled_ends_in_order(
    conversation, running, monkeypatch
):
    before = asyncio.all_tasks()
    await Participant.objects.acreate(
        conversation=conversation,
        user=await sync_to_async(a_user)("bob"),
        invited_by=conversation.owner,
        accepted_at=timezone.now(),
    )
    page, other = [await Page(conversation).open() for _ in range(2)]
    opened = await sync_to_async(conversation.open_turn)([user_message("Hi")])
    gone: list[Any] = []
    get_channel_layer().join(group_of(conversation.pk), gone.append)
    page.ask(type="turn.follow", turn=opened.turn.pk)

    async def closed(message: Any) -> None:
        raise SocketClosed

    monkeypatch.setattr(page.consumer, "base_send", closed)
    page.ask(type="ping")
    await page.serving
    assert [each["type"] for each in gone] == ["presence.gone"]
    await other.leave()
    assert asyncio.all_tasks() == before


async def test_a_page_hears_that_its_turn_has_been_deleted(
    conversation, running, monkeypatch
):
    def delete_and_replay(turn_id: str) -> Any:
        Turn.objects.filter(pk=turn_id).delete()
        return replay(turn_id)

    opened = await sync_to_async(conversation.open_turn)([user_message("Hi")])
    turn = opened.turn
    monkeypatch.setattr(subscriptions, "replay_or_status", delete_and_replay)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(orjson.loads(message["text"]))

    await TurnSubscriptions(send, None).forward(turn.pk, None)
    (heard,) = sent
    assert (heard["type"], heard["turn"]) == ("error", turn.pk)
    assert heard["error"]["message"] == "This turn has been deleted."


async def test_a_page_that_closes_during_delivery_receives_no_more(monkeypatch):
    async def subscribe(*_: Any):
        yield [Entry.of("resp_1", Position(1, 0), {"type": "response.created"})]
        raise AssertionError("nobody is there")

    async def send(_: Any) -> None:
        raise RuntimeError("websocket.send after websocket.close")  # as uvicorn does

    monkeypatch.setattr(engine, "subscribe", subscribe)
    await TurnSubscriptions(send, None).forward("resp_1", None)


@pytest.mark.parametrize("size", [10, LARGE_EVENT])
async def test_definitions_of_tools_are_sent_once_per_turn(
    conversation, say, offer, running, size
):
    """On the WebSocket in `response.created` alone; REST has them in each response."""
    say([TextDelta(0, "a" * size)])
    offer(lambda context, arguments: "")
    opened = await sync_to_async(conversation.open_turn)([user_message("Hi")])
    turn = opened.turn
    engine.submit(turn.pk, conversation.pk)
    received: list[Any] = []

    async def send(sent: Any) -> None:
        received.append(orjson.loads(sent["text"]))

    await TurnSubscriptions(send, None).forward(turn.pk, None)
    responses = [sent["response"] for sent in received if "response" in sent]
    assert [tool["name"] for tool in responses[0]["tools"]] == ["dig"]
    assert len(responses) == 3
    assert not any("tools" in response for response in responses[1:])
    entries = [entry async for batch in engine.subscribe(turn.pk) for entry in batch]
    for entry in entries:  # written past ASGI, the same bytes
        assert entry.ws_frame() == frame(entry.ws.encode())
    rest = [entry.event.get("response") for entry in entries]
    standard = [response for response in rest if response]
    assert standard == [
        {**response, "tools": responses[0]["tools"]} for response in responses
    ]


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each text of the catalogue is preceded by the active language."""

    def translate(text: str) -> str:
        return f"[{translation.get_language()}] {text}"

    monkeypatch.setattr(english_texts, "gettext", translate)


@pytest.fixture
def under_maintenance(transactional_db: None) -> Iterator[None]:
    Maintenance.objects.create(refuses_messages=True)
    maintenance.load()
    yield
    maintenance.note(Notice())


async def refusal_of(page: Page, **message: Any) -> dict[str, Any]:
    page.ask(key="k", **message)
    refused = await page.hears()
    assert (refused["type"], refused["key"]) == ("error", "k")
    error: dict[str, Any] = refused["error"]
    return error


@pytest.mark.usefixtures("translated", "under_maintenance")
@pytest.mark.parametrize(
    ("chosen", "accepted", "language"),
    [("de", "fr", "de"), ("", "fr-CH, en;q=0.5", "fr"), ("xx", "\xff;;q", "en")],
)
async def test_refusals_are_in_the_users_language(
    conversation, running, chosen, accepted, language
):
    await UserSettings.objects.acreate(user=conversation.owner, language=chosen)
    page = await Page(conversation, accepted).open()
    turn = await sync_to_async(a_finished_turn)(conversation)
    await Turn.objects.filter(pk=turn.pk).aupdate(status=Turn.Status.CANCELLED)
    words = f"[{language}] {UnderMaintenance()}"
    for message in (
        {"type": "turn.create", "input": "Hi"},
        {"type": "turn.continue", "turn": turn.pk},
    ):
        error = await refusal_of(page, **message)
        assert (error["code"], error["retry_after"]) == ("maintenance", 60)
        assert error["message"] == words
    error = await refusal_of(page, type="turn.create", input="Hi", model="none")
    assert error["message"].startswith(f"[{language}] There is no model")
    error = await refusal_of(page, type="turn.cancel", turn="none")
    assert error["message"].startswith(f"[{language}] There is no such turn")
    error = await refusal_of(page, type="dance")
    assert error["message"] == "The type 'dance' is unknown."  # programs only
    await page.leave()
    assert await Turn.objects.acount() == 1
