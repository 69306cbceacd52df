"""Whose WebSocket it is: the person of the session whose cookie the browser shows.

Channels' own middleware puts a wrapper around `send` as well, which looks at the
session for every message, to save what no socket of ours ever changes.

Session and person are looked up by prepared queries, each time anew, so that who has
signed out or may not sign in any more does not come in. Django's own way is gone
wherever something is not as usual: no such session, an old secret, another backend.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_user,
    get_user_model,
    load_backend,
)
from django.contrib.auth.backends import ModelBackend
from django.contrib.sessions.backends.db import SessionStore
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from llm.prepared import Prepared

Headers = Iterable[tuple[bytes, bytes]]


def person(headers: Headers) -> Any:
    """Whose socket has these headers, be it an anonymous one's. Asks the database."""
    return person_of(session_key(headers))


def person_of(session_key: str | None) -> Any:
    """The user of a session, be it the anonymous one. Asks the database."""
    session = _store(settings.SESSION_ENGINE)(session_key)
    if user := _usual(session):
        return user
    # All that is asked of a request is its session.
    return get_user(cast(HttpRequest, SimpleNamespace(session=session)))


def session_key(headers: Headers) -> str | None:
    for name, value in headers:
        if name == b"cookie":
            try:
                cookies = SimpleCookie(value.decode("latin-1"))
            except CookieError:
                return None
            found = cookies.get(settings.SESSION_COOKIE_NAME)
            return found.value if found else None
    return None


def _usual(session: Any) -> Any:
    """The person of a session that is as most are; None for Django to find out."""
    path, told = session.get(BACKEND_SESSION_KEY), session.get(HASH_SESSION_KEY)
    if not told or path not in settings.AUTHENTICATION_BACKENDS:
        return None
    backend: Any = load_backend(path)
    if getattr(type(backend), "get_user", None) is not ModelBackend.get_user:
        return None
    people = get_user_model()
    user = _people(people).first(people._meta.pk.to_python(session[SESSION_KEY]))
    if user is None or not backend.user_can_authenticate(user):
        return None
    is_theirs = constant_time_compare(told, user.get_session_auth_hash())
    return user if is_theirs else None


@cache
def _people(model: Any) -> Prepared[Any]:
    return Prepared(lambda pk: model._default_manager.filter(pk=pk), -1)


@cache
def _sessions(model: Any) -> Prepared[Any]:
    return Prepared(
        lambda key, now: model.objects.filter(session_key=key, expire_date__gt=now),
        "a key",
        datetime(1970, 1, 2, tzinfo=UTC),
    )


@cache
def _store(engine_name: str) -> Any:
    """The class of sessions. One that asks the database as Django's does, is to ask it
    by a prepared query."""
    store = import_module(engine_name).SessionStore
    asks = getattr(store, "_get_session_from_db", None)
    if asks is not vars(SessionStore)["_get_session_from_db"]:
        return store

    def ask(self: Any) -> Any:
        sessions = _sessions(self.get_model_class())
        found = sessions.first(self.session_key, timezone.now())
        return found or asks(self)

    return type("SessionStore", (store,), {"_get_session_from_db": ask})
