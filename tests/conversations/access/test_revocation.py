"""Open connections of people and programs whose access was revoked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from conversations.engine.connection_revocation import (
    ClosingTasks,
    Connections,
    Credential,
    invalid,
)
from conversations.models import AccessToken, Conversation, Question, ToolCall, Turn
from llm.wire.items import user_message
from project.server.application import application
from tests.conversations.scene import a_user, signed_in
from tests.integration.clients import NO_TLS, PATIENCE, Program, sign_in, socket
from tests.serving import ServerProcess

pytestmark = pytest.mark.django_db(transaction=True)


# Which are valid


def a_session(user: User) -> Credential:
    key = signed_in(user).cookies[settings.SESSION_COOKIE_NAME].value
    return Credential.of_session(user, key)


def a_token(user: User, **fields: Any) -> Credential:
    token = AccessToken.issue(user, "test", **fields)[0]
    return Credential(token.user_id, token_id=token.pk)


def _signed_out(credential: Credential) -> None:
    Session.objects.filter(session_key=credential.session_key).delete()


def _session_expired(credential: Credential) -> None:
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))


def _password_changed(credential: Credential) -> None:
    user = User.objects.get(pk=credential.user_id)
    user.set_password("another one")
    user.save()


def _deactivated(credential: Credential) -> None:
    User.objects.filter(pk=credential.user_id).update(is_active=False)


def _deleted(credential: Credential) -> None:
    User.objects.filter(pk=credential.user_id).delete()


def _revoked(credential: Credential) -> None:
    AccessToken.objects.get(pk=credential.token_id).revoke()


def _token_expired(credential: Credential) -> None:
    AccessToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))


SESSION_ENDS = [
    _signed_out,
    _session_expired,
    _password_changed,
    _deactivated,
    _deleted,
]
TOKEN_ENDS = [_revoked, _token_expired, _deactivated, _deleted]


@pytest.mark.parametrize("change", SESSION_ENDS)
def test_a_session_is_valid_until(change: Callable[[Credential], None]):
    theirs, other = a_session(a_user("ada")), a_session(a_user("grace"))
    assert invalid([theirs, other]) == set()
    change(theirs)
    assert theirs in invalid([theirs, other])
    if change is not _session_expired:
        assert invalid([other]) == set()


@pytest.mark.parametrize("change", TOKEN_ENDS)
def test_a_token_is_valid_until(change: Callable[[Credential], None]):
    theirs = a_token(a_user("ada"))
    assert invalid([theirs]) == set()
    change(theirs)
    assert invalid([theirs]) == {theirs}


def test_a_changed_password_leaves_tokens_alone():
    theirs = a_token(a_user("ada"))
    _password_changed(theirs)
    assert invalid([theirs]) == set()


@pytest.mark.parametrize("engine", ["cached_db", "cache", "file"])
def test_sessions_may_be_stored_anywhere(engine: str, settings: Any, tmp_path: Any):
    settings.SESSION_ENGINE = f"django.contrib.sessions.backends.{engine}"
    settings.SESSION_FILE_PATH = str(tmp_path)
    client = signed_in(a_user("ada"))
    key = client.cookies[settings.SESSION_COOKIE_NAME].value
    credential = Credential.of_session(User.objects.get(), key)
    assert invalid([credential]) == set()
    client.post("/logout/")
    assert invalid([credential]) == {credential}


def test_all_connections_together_cost_three_queries(django_assert_num_queries: Any):
    users = [a_user(f"user-{number}") for number in range(20)]
    credentials = [make(user) for user in users for make in (a_session, a_token)]
    with django_assert_num_queries(3):
        assert invalid(credentials) == set()


async def test_only_what_is_no_longer_valid_is_ended_and_once():
    users = [await sync_to_async(a_user)(name) for name in ("ada", "grace")]
    credentials = [await sync_to_async(a_session)(user) for user in users]
    connections, ended = Connections(), []
    for credential in [*credentials, *credentials]:
        connections.add(credential, lambda c=credential: ended.append(c))
    ended_one = connections.add(credentials[0], lambda: ended.append("it had gone"))
    ended_one()
    await connections.check()
    assert ended == []
    await sync_to_async(_signed_out)(credentials[0])
    for _ in range(2):
        await connections.check()
    assert ended == [credentials[0], credentials[0]]


async def test_one_that_cannot_be_ended_leaves_no_other_open(
    caplog: pytest.LogCaptureFixture,
):
    theirs = await sync_to_async(lambda: a_session(a_user("ada")))()
    connections, ended = Connections(), []

    def fail() -> None:
        raise ConnectionResetError

    for end in (fail, lambda: ended.append(1), fail, lambda: ended.append(2)):
        connections.add(theirs, end)
    await sync_to_async(_signed_out)(theirs)
    await connections.check()
    assert ended == [1, 2]
    failures = [r for r in caplog.records if "was not ended" in r.getMessage()]
    assert len(failures) == 2


async def test_a_socket_that_cannot_be_closed_is_logged(
    caplog: pytest.LogCaptureFixture,
):
    tasks, has_run = ClosingTasks(), asyncio.Event()

    async def fail() -> None:
        has_run.set()
        raise ValueError("the socket is odd")

    tasks.start(fail())
    await has_run.wait()
    await asyncio.sleep(0)  # its callbacks run
    (record,) = caplog.records
    assert "was not closed" in record.getMessage()
    assert "the socket is odd" in caplog.text


def test_a_credential_shows_no_secret():
    user = a_user("ada")
    theirs = a_session(user)
    assert theirs.auth_hash != user.password
    for secret in (theirs.auth_hash, theirs.session_key, user.password):
        assert secret
        assert secret not in repr(theirs)


# Messages of an open page


class OpenPage:
    """A WebSocket to the whole application, in this process."""

    def __init__(self, conversation: Conversation, session_key: str) -> None:
        cookie = f"{settings.SESSION_COOKIE_NAME}={session_key}".encode()
        self._inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.hears: asyncio.Queue[Any] = asyncio.Queue()
        scope = {
            "type": "websocket",
            "path": f"/ws/conversations/{conversation.pk}/",
            "headers": [
                (b"host", b"localhost"),
                (b"origin", b"http://localhost"),
                (b"cookie", cookie),
            ],
        }
        self._inbox.put_nowait({"type": "websocket.connect"})
        served = application(scope, self._inbox.get, self.hears.put)
        self.serving = asyncio.ensure_future(served)

    async def send_message(self, **message: Any) -> Any:
        return await self.send(json.dumps(message))

    async def send(self, text: str) -> Any:
        await self._inbox.put({"type": "websocket.receive", "text": text})
        return await self.hears.get()

    async def leave(self) -> None:
        await self._inbox.put({"type": "websocket.disconnect", "code": 1001})
        await self.serving


def _a_question(conversation: Conversation) -> Question:
    turn = conversation.open_turn([user_message("Hi")]).turn
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.WAITING)
    call = ToolCall.objects.create(
        turn=turn, call_id="call_1", name="x", state=ToolCall.State.AWAITING_APPROVAL
    )
    return Question.objects.create(
        tool_call=call,
        kind=Question.Kind.APPROVAL,
        expires_at=timezone.now() + timedelta(days=1),
    )


@pytest.mark.parametrize("change", [_signed_out, _password_changed, _deactivated])
@pytest.mark.parametrize(
    "message",
    [
        {"type": "question.answer", "action": "accept"},
        {"type": "turn.cancel"},
        {"type": "turn.continue"},
        {"type": "turn.follow"},
        {"type": "tool_call.cancel"},
        {"type": "turn.create", "input": "Hi", "key": "k"},
    ],
    ids=lambda message: message["type"],
)
async def test_a_signed_out_user_can_do_nothing_on_an_open_page(
    message: Any, change: Any, conversation: Conversation, running: None
):
    question = await sync_to_async(_a_question)(conversation)
    turn_id = question.tool_call.turn_id
    names = {
        "question.answer": {"id": question.pk},
        "tool_call.cancel": {"id": question.tool_call_id},
        **{
            f"turn.{act}": {"turn": turn_id} for act in ("cancel", "continue", "follow")
        },
    }
    credential = await sync_to_async(a_session)(conversation.owner)
    page = OpenPage(conversation, credential.session_key)
    assert (await page.hears.get())["type"] == "websocket.accept"
    await sync_to_async(change)(credential)
    heard = await page.send_message(**message, **names.get(message["type"], {}))
    assert (heard["type"], heard["code"]) == ("websocket.close", 4401)
    await page.leave()
    await question.arefresh_from_db()
    assert question.state == Question.State.OPEN
    turn = await Turn.objects.aget()
    assert not turn.cancel_requested


# Over real servers, with changes that another process makes

SLOW = "/slow 100 Count from 1 to 3"


async def _end_of(stream: Any) -> None:
    async for _ in stream:
        pass


async def _closed(connection: Any) -> int | None:
    with suppress(ConnectionClosed):
        async for _ in connection:
            pass
    return connection.close_code


def _elsewhere(server: ServerProcess, code: str) -> None:
    """In another process, without any signal."""
    imports = (
        "from conversations.models import AccessToken as T;"
        "from django.contrib.sessions.models import Session as S;"
        "from django.contrib.auth.models import User as U;"
        "from django.utils.timezone import now;"
    )
    server.manage("shell", "-v0", "-c", imports + code)


@pytest.mark.parametrize(
    "code",
    [
        "S.objects.all().delete()",
        "U.objects.update(is_active=False)",
        "u = U.objects.get(username='admin'); u.set_password('new'); u.save()",
    ],
    ids=["signed out", "deactivated", "new password"],
)
async def test_a_persons_socket_and_streams_end(server: ServerProcess, code: str):
    program = Program(server)
    conversation = await program.conversation()
    cookie = await sign_in(server, "admin")
    turn = await program.create_turn(conversation, SLOW)
    url = f"{server.url}/api/turns/{turn}/events/"
    async with (
        asyncio.timeout(PATIENCE),
        socket(server, conversation, cookie) as connection,
        httpx.AsyncClient(
            headers={"Cookie": cookie}, timeout=PATIENCE, verify=NO_TLS
        ) as http,
        http.stream("GET", url) as stream,
    ):
        await connection.send(json.dumps({"type": "turn.follow", "turn": turn}))
        await connection.recv()
        chunks = stream.aiter_bytes()
        await anext(chunks)
        await asyncio.to_thread(_elsewhere, server, code)
        assert await _closed(connection) == 4401
        await _end_of(chunks)
        assert (await http.get(url)).status_code in (401, 403)
    assert "Traceback" not in server.log()


async def test_a_programs_socket_and_streams_end(server: ServerProcess):
    token = server.create_token()
    headers = {"Authorization": f"Bearer {token}"}
    program = Program(server, token=token)
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, SLOW)
    body = {"model": "demo", "input": SLOW, "store": False, "stream": True}
    wish = json.dumps({"type": "response.create", "model": "demo", "input": SLOW})
    async with (
        asyncio.timeout(PATIENCE),
        connect(
            f"{server.ws_url}/v1/responses", additional_headers=headers
        ) as connection,
        program.http() as http,
        http.stream("GET", f"/api/turns/{turn}/events/") as events,
        http.stream("POST", "/v1/responses", json=body) as response,
    ):
        await connection.send(wish)
        await connection.recv()
        chunks = [events.aiter_bytes(), response.aiter_bytes()]
        for each in chunks:
            await anext(each)
        waiting = {"input": SLOW, "wait": True}
        url = f"/api/conversations/{await program.conversation()}/turns/"
        async with asyncio.TaskGroup() as tasks:
            answer = tasks.create_task(http.post(url, json=waiting))
            revoke = "T.objects.update(revoked_at=now())"
            tasks.create_task(asyncio.to_thread(_elsewhere, server, revoke))
        assert answer.result().status_code == 401
        assert await _closed(connection) == 4401
        for each in chunks:
            await _end_of(each)
    assert "Traceback" not in server.log()
