"""Whose WebSocket it is."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from conversations.sign_in import signed_in

pytestmark = pytest.mark.django_db(transaction=True)


async def _user_of(*headers: tuple[bytes, bytes]) -> Any:
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["user"])

    await signed_in(app)({"headers": list(headers)}, None, None)
    return seen[0]


@pytest.fixture
def cookie() -> bytes:
    client = Client()
    client.force_login(User.objects.create_user("ada"))
    key = client.cookies[settings.SESSION_COOKIE_NAME].value
    return f"theme=dark; {settings.SESSION_COOKIE_NAME}={key}".encode()


async def test_a_session_is_somebodys(cookie: bytes) -> None:
    user = await _user_of((b"host", b"here"), (b"cookie", cookie))
    assert user.username == "ada"


@pytest.mark.parametrize(
    "cookies",
    [
        [],
        [b""],
        [b"theme=dark"],
        [b"sessionid="],
        [b"sessionid=nobody's"],
        [b"\xff\x00=;;"],
        [b'sessionid="unclosed'],
    ],
)
async def test_anything_else_is_nobodys(cookies: list[bytes]) -> None:
    user = await _user_of(*[(b"cookie", value) for value in cookies])
    assert not user.is_authenticated
