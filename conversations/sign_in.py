"""Whose WebSocket it is: the person of the session whose cookie the browser shows.

Channels' own middleware puts a wrapper around `send` as well, which looks at the
session for every message, to save what no socket of ours ever changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.http import HttpRequest

Socket = Callable[[Any, Any, Any], Awaitable[None]]


def signed_in(app: Socket) -> Socket:
    """`app` with a `user` in its scope, be it an anonymous one."""

    async def enter(scope: Any, receive: Any, send: Any) -> None:
        user = await database_sync_to_async(_user)(_session_key(scope["headers"]))
        await app({**scope, "user": user}, receive, send)

    return enter


def _session_key(headers: list[tuple[bytes, bytes]]) -> str | None:
    for name, value in headers:
        if name == b"cookie":
            try:
                cookies = SimpleCookie(value.decode("latin-1"))
            except CookieError:
                return None
            found = cookies.get(settings.SESSION_COOKIE_NAME)
            return found.value if found else None
    return None


def _user(session_key: str | None) -> Any:
    store = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    # All that is asked of a request is its session.
    return get_user(cast(HttpRequest, SimpleNamespace(session=store)))
