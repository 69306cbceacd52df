"""Whose WebSocket it is."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from conversations.access.session_user import user_from_headers

pytestmark = pytest.mark.django_db(transaction=True)


async def _user_of(*headers: tuple[bytes, bytes]) -> Any:
    return await sync_to_async(user_from_headers)(headers)


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


# As Django judges it, whatever has become of the session since


class OnlyFriends(ModelBackend):
    """A backend that finds its people itself."""

    def get_user(self, user_id: int) -> Any:
        user = super().get_user(user_id)
        return user if user and user.username == "friend" else None


class NoAda(ModelBackend):
    def user_can_authenticate(self, user: Any) -> bool:
        return bool(user.username != "ada")


def _signed_in_as(name: str) -> str:
    client = Client()
    user = User.objects.filter(username=name).first() or User.objects.create_user(name)
    client.force_login(user, settings.AUTHENTICATION_BACKENDS[:2][-1])
    return str(client.cookies[settings.SESSION_COOKIE_NAME].value)


async def _names(key: str) -> tuple[str, str]:
    """The user of a session by our lookup, and by Django's."""
    ours = await _user_of((b"cookie", f"{settings.SESSION_COOKIE_NAME}={key}".encode()))
    return ours.username, (await sync_to_async(_by_django)(key)).username


def _by_django(key: str) -> Any:
    session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    return get_user(SimpleNamespace(session=session))


def _nothing() -> None:
    pass


def _signed_out() -> None:
    Session.objects.all().delete()


def _expired() -> None:
    Session.objects.update(expire_date=timezone.now())


def _disabled() -> None:
    User.objects.update(is_active=False)


def _with_another_password() -> None:
    user = User.objects.get()
    user.set_password("another one")
    user.save()


def _deleted() -> None:
    User.objects.all().delete()


def _tampered_with() -> None:
    Session.objects.update(session_data="e30:1abcde:nobody-signed-this")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (_nothing, "ada"),
        (_signed_out, ""),
        (_expired, ""),
        (_disabled, ""),
        (_with_another_password, ""),
        (_deleted, ""),
        (_tampered_with, ""),
    ],
)
async def test_changes_of_a_session_take_effect_at_once(change: Any, name: str) -> None:
    key = await sync_to_async(_signed_in_as)("ada")
    assert await _names(key) == ("ada", "ada")
    await sync_to_async(change)()
    assert await _names(key) == (name, name)


async def test_a_fallback_secret_is_accepted_where_configured(settings: Any) -> None:
    key = await sync_to_async(_signed_in_as)("ada")
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "a new one"
    user = await _user_of((b"cookie", f"{settings.SESSION_COOKIE_NAME}={key}".encode()))
    assert user.username == "ada"
    settings.SECRET_KEY_FALLBACKS = []
    assert await _names(key) == ("", "")


@pytest.mark.parametrize("engine", ["db", "cached_db", "cache", "file"])
async def test_every_session_backend_is_supported(
    engine: str, settings: Any, tmp_path: Any
) -> None:
    settings.SESSION_ENGINE = f"django.contrib.sessions.backends.{engine}"
    settings.SESSION_FILE_PATH = str(tmp_path)
    key = await sync_to_async(_signed_in_as)("ada")
    assert await _names(key) == ("ada", "ada")
    assert await _names(key[1:] + "-") == ("", "")


@pytest.mark.parametrize("backend", [OnlyFriends, NoAda])
async def test_a_backend_has_its_own_mind(backend: type, settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.{backend.__name__}"]
    ada, friend = [await sync_to_async(_signed_in_as)(n) for n in ("ada", "friend")]
    assert await _names(ada) == ("", "")
    assert await _names(friend) == ("friend", "friend")


async def test_a_session_of_a_removed_backend_is_refused(settings: Any) -> None:
    key = await sync_to_async(_signed_in_as)("ada")
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.NoAda"]
    assert await _names(key) == ("", "")


async def test_a_websocket_leaves_the_session_of_an_older_secret(settings: Any) -> None:
    key = await sync_to_async(_signed_in_as)("ada")
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "a new one"
    cookie = f"{settings.SESSION_COOKIE_NAME}={key}".encode()
    for _ in range(2):  # the browser still has the old key
        assert (await _user_of((b"cookie", cookie))).username == "ada"
