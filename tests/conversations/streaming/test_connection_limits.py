"""How many connections of one user or token are open in a process."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from asgiref.sync import sync_to_async
from httpx import ASGITransport, AsyncClient

from conversations.access.errors import TooManyConnections
from conversations.engine.connection_revocation import (
    Connections,
    Credential,
    open_connections,
)
from conversations.http.sse import StreamMiddleware, TurnStreamResponse
from conversations.models import AccessToken, Conversation, Turn
from conversations.models.access_token import Scope
from tests.conversations.scene import a_model, a_user
from tests.conversations.sharing.test_open_connections import Page

pytestmark = pytest.mark.django_db(transaction=True)


def nothing() -> None:
    pass


async def test_each_user_and_token_has_places_of_its_own(settings: Any):
    settings.USER_CONNECTIONS, settings.TOKEN_CONNECTIONS = 2, 1
    connections = Connections()
    ada, bob = Credential(1, session_key="a"), Credential(2, session_key="b")
    # Another session of Ada's; and a token whose number is that of a user.
    other, token = Credential(1, session_key="c"), Credential(1, token_id=2)
    leave = connections.add(ada, nothing)
    connections.add(other, nothing)
    for refused in (ada, other):
        with pytest.raises(TooManyConnections, match="2 connections of this user"):
            connections.add(refused, nothing)
    connections.add(token, nothing)
    with pytest.raises(TooManyConnections, match="1 connections of this token"):
        connections.add(token, nothing)
    connections.add(bob, nothing)
    leave()
    leave()  # counts once
    connections.add(ada, nothing)
    with pytest.raises(TooManyConnections):
        connections.add(ada, nothing)


async def test_what_is_watched_counts_as_no_connection(settings: Any):
    settings.USER_CONNECTIONS = 1
    connections, ada = Connections(), Credential(1, session_key="a")
    leave = connections.add(ada, nothing, is_watcher=True)
    assert len(connections) == 0
    connections.add(ada, nothing)
    assert len(connections) == 1
    leave()
    assert len(connections) == 1


async def test_zero_is_no_limit(settings: Any):
    settings.USER_CONNECTIONS = 0
    connections = Connections()
    for _ in range(500):
        connections.add(Credential(1, session_key="a"), nothing)


async def test_a_socket_too_many_is_closed_with_the_reason(
    settings: Any, conversation: Any, running: None
):
    settings.USER_CONNECTIONS = 1
    pages = [
        await sync_to_async(Page)(conversation.owner, conversation) for _ in range(2)
    ]
    assert (await pages[0].open())["type"] == "websocket.accept"
    assert (await pages[1].open())["type"] == "websocket.accept"
    closed = await pages[1].get()
    assert (closed["type"], closed["code"]) == ("websocket.close", 4429)
    assert "close one first" in closed["reason"]
    await pages[1].serving
    pages[0].inbox.put_nowait({"type": "websocket.disconnect", "code": 1001})
    await pages[0].serving
    again = await sync_to_async(Page)(conversation.owner, conversation)
    await again.open()
    again.inbox.put_nowait({"type": "websocket.disconnect", "code": 1001})
    await again.serving
    assert again.sent.empty()


async def test_a_stream_too_many_is_429(settings: Any):
    settings.USER_CONNECTIONS = 1
    credential = Credential(1, session_key="a")
    sent: list[Any] = []

    async def view(scope: Any, receive: Any, send: Any) -> None:
        headers = [
            (name.lower().encode(), value.encode())
            for name, value in TurnStreamResponse("resp_1").items()
        ]
        scope["parley.credential"] = credential
        await send({"type": "http.response.start", "status": 202, "headers": headers})

    async def send(message: Any) -> None:
        sent.append(message)

    leave = open_connections().add(credential, nothing)
    await StreamMiddleware(view)({"type": "http"}, asyncio.Event().wait, send)
    leave()
    assert sent[0]["status"] == 429
    assert dict(sent[0]["headers"])[b"retry-after"] == b"5"
    assert orjson.loads(sent[1]["body"])["error"]["code"] == "too_many_connections"


@pytest.mark.parametrize("way", ["wait", "stream"])
@pytest.mark.usefixtures("scripted_host")
async def test_a_message_whose_stream_is_refused_opens_no_turn(settings: Any, way: str):
    from project.server.application import application

    settings.TOKEN_CONNECTIONS = 1
    user = await sync_to_async(a_user)()
    await sync_to_async(a_model)(is_default=True)
    conversation = await Conversation.objects.acreate(owner=user)
    row, token = await sync_to_async(AccessToken.issue)(user, "test")
    path = f"/api/conversations/{conversation.pk}/turns/"
    leave = open_connections().add(Credential(user.pk, token_id=row.pk), nothing)
    async with AsyncClient(
        transport=ASGITransport(application), base_url="http://localhost"
    ) as http:
        refused = await http.post(
            path,
            json={"input": "Hi", way: True},
            headers={"Authorization": f"Bearer {token}"},
        )
    leave()
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "too_many_connections"
    assert refused.headers["retry-after"] == "5"
    assert not await Turn.objects.aexists()


async def test_a_stream_that_was_checked_is_not_refused_once_its_turn_runs(
    settings: Any,
):
    settings.USER_CONNECTIONS = 1
    connections, ada = Connections(), Credential(1, session_key="a")
    for _ in range(2):
        connections.add(ada, nothing, is_checked=True)
    with pytest.raises(TooManyConnections):
        connections.add(ada, nothing)


async def test_the_gateway_answers_429(settings: Any):
    from project.server.application import application

    if settings.IS_SCALED:
        pytest.skip("the same in both deliveries")
    settings.TOKEN_CONNECTIONS = 1
    user = await sync_to_async(a_user)()
    row, token = await sync_to_async(AccessToken.issue)(
        user, "test", scopes=[Scope.GATEWAY]
    )
    leave = open_connections().add(Credential(user.pk, token_id=row.pk), nothing)
    headers = {"Authorization": f"Bearer {token}"}
    async with AsyncClient(
        transport=ASGITransport(application), base_url="http://localhost"
    ) as http:
        refused = await http.get("/v1/models", headers=headers)
        leave()
        assert (await http.get("/v1/models", headers=headers)).status_code == 200
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "too_many_connections"
    assert refused.headers["retry-after"] == "5"
