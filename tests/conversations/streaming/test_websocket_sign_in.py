"""Sign-in at the WebSocket of an open page, through the whole application."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from conversations.access.participation import invite
from conversations.models import Conversation
from project.server.application import application
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db(transaction=True)

OURS = (b"origin", b"http://localhost")


async def first_reply(path: str, *headers: tuple[bytes, bytes]) -> Any:
    """The first message that a socket receives; then it disconnects."""
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    inbox.put_nowait({"type": "websocket.connect"})
    hears: list[Any] = []

    async def send(message: Any) -> None:
        hears.append(message)
        inbox.put_nowait({"type": "websocket.disconnect", "code": 1001})

    all_headers = [(b"host", b"localhost"), *headers]
    scope = {"type": "websocket", "path": path, "headers": all_headers}
    await application(scope, inbox.get, send)
    return hears[0]


def _path(conversation: Conversation) -> str:
    return f"/ws/conversations/{conversation.pk}/"


def _cookie(user: User) -> tuple[bytes, bytes]:
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    return b"cookie", f"{name}={client.cookies[name].value}".encode()


@pytest.fixture
def bob() -> User:
    return User.objects.create_user("bob")


async def test_whose_conversation_it_is_comes_in(conversation, running):
    cookie = await sync_to_async(_cookie)(conversation.owner)
    hears = await first_reply(_path(conversation), OURS, cookie)
    assert hears["type"] == "websocket.accept"


async def test_anonymous_and_foreign_users_are_refused_with_the_reason(
    conversation, bob, running
):
    path, cookie = _path(conversation), await sync_to_async(_cookie)(bob)
    assert await first_reply(path, OURS) == {"type": "websocket.close", "code": 4401}
    assert await first_reply(path, OURS, cookie) == {
        "type": "websocket.close",
        "code": 4404,
    }


@pytest.mark.parametrize(
    "origins",
    [
        [],
        [b""],
        [b"null"],
        [b"\xff"],
        [b"http://[" + b"::1"],
        [b"http://elsewhere.example"],
        [b"http://localhost", b"http://elsewhere.example"],
        [b"http://elsewhere.example", b"http://localhost"],
        [b"https://localhost"],
        [b"http://localhost:8000"],
        [b"http://127.0.0.1"],
        [b"http://localhost.elsewhere.example"],
    ],
)
async def test_pages_of_other_sites_do_not_come_in(conversation, origins, running):
    cookie = await sync_to_async(_cookie)(conversation.owner)
    headers = [(b"origin", origin) for origin in origins]
    hears = await first_reply(_path(conversation), *headers, cookie)
    assert hears == {"type": "websocket.close"}


async def test_a_page_of_a_trusted_origin_comes_in(conversation, running, settings):
    settings.CSRF_TRUSTED_ORIGINS = ["https://chat.example"]
    cookie = await sync_to_async(_cookie)(conversation.owner)
    hears = await first_reply(
        _path(conversation), (b"origin", b"https://chat.example"), cookie
    )
    assert hears["type"] == "websocket.accept"


@pytest.mark.parametrize(
    "path",
    ["/", "*", "/\0", "/v1/models", "/ws/conversations/", "/ws/conversations/a/b/"],
)
async def test_there_are_no_other_sockets(path):
    assert await first_reply(path, OURS) == {"type": "websocket.close"}


def test_servers_take_it_for_what_it_is():
    assert iscoroutinefunction(application)
    assert asyncio.iscoroutinefunction(application)  # as uvicorn requires


async def test_a_page_gets_its_pong_and_notifications_of_new_titles(
    conversation, running, client
):
    cookie = await sync_to_async(_cookie)(conversation.owner)
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    hears: asyncio.Queue[Any] = asyncio.Queue()
    scope = {
        "type": "websocket",
        "path": _path(conversation),
        "headers": [(b"host", b"localhost"), OURS, cookie],
    }
    page = asyncio.ensure_future(application(scope, inbox.get, hears.put))
    inbox.put_nowait({"type": "websocket.connect"})
    assert (await hears.get())["type"] == "websocket.accept"
    inbox.put_nowait({"type": "websocket.receive", "text": '{"type": "ping"}'})
    assert json.loads((await hears.get())["text"]) == {"type": "parley:pong"}
    other = await Conversation.objects.acreate(owner=conversation.owner, title="Old")
    await sync_to_async(client.force_login)(conversation.owner)
    address = f"/api/conversations/{other.pk}/"
    for title in ("New", "New"):  # the second time it is the same
        answer = await sync_to_async(client.patch)(
            address, {"title": title}, content_type="application/json"
        )
        assert answer.status_code == 200
    renamed = {"type": "parley:conversation.renamed", "conversation": other.pk}
    assert json.loads((await hears.get())["text"]) == renamed
    inbox.put_nowait({"type": "websocket.disconnect", "code": 1001})
    await page
    assert hears.empty()


async def test_a_participant_s_page_is_told_of_a_new_title(
    conversation, running, client
):
    bob = await sync_to_async(a_user)("bob")
    invited = await sync_to_async(invite)(conversation, "bob", "viewer")
    await sync_to_async(invited.accept)()
    scope = {"type": "websocket", "path": _path(conversation)}
    heard: asyncio.Queue[Any] = asyncio.Queue()
    inbox: asyncio.Queue[Any] = asyncio.Queue()
    headers = [(b"host", b"localhost"), OURS, await sync_to_async(_cookie)(bob)]
    page = asyncio.ensure_future(
        application({**scope, "headers": headers}, inbox.get, heard.put)
    )
    inbox.put_nowait({"type": "websocket.connect"})
    assert (await heard.get())["type"] == "websocket.accept"
    await sync_to_async(client.force_login)(conversation.owner)
    await sync_to_async(client.patch)(
        f"/api/conversations/{conversation.pk}/",
        {"title": "New"},
        content_type="application/json",
    )
    renamed = {"type": "parley:conversation.renamed", "conversation": conversation.pk}
    while json.loads((await heard.get())["text"]) != renamed:
        pass  # who is there
    inbox.put_nowait({"type": "websocket.disconnect", "code": 1001})
    await page
