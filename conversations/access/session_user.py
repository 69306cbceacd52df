"""Find the user of a session cookie, for WebSockets.

Channels' own middleware also wraps `send` to save the session on every message, but no
consumer changes the session.

Session and user are read by prepared queries each time, so a user who has signed out or
been deactivated is not accepted. In unusual cases (no such session, an older
SECRET_KEY, another authentication backend) Django's `get_user` decides.
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

from llm.db.compiled_queries import CompiledQuery

Headers = Iterable[tuple[bytes, bytes]]


def user_from_headers(headers: Headers) -> Any:
    """The user of a request's session cookie, or AnonymousUser. Reads the database."""
    return user_from_session(session_key(headers))


def user_from_session(session_key: str | None) -> Any:
    """The user of a session, or AnonymousUser. Reads the database."""
    session = _store(settings.SESSION_ENGINE)(session_key)
    if user := _find_by_prepared_query(session):
        return user
    # `get_user` uses only the session of its request.
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


def _find_by_prepared_query(session: Any) -> Any:
    """The user by prepared query; None where Django's `get_user` has to decide."""
    path, stored_hash = session.get(BACKEND_SESSION_KEY), session.get(HASH_SESSION_KEY)
    if not stored_hash or path not in settings.AUTHENTICATION_BACKENDS:
        return None
    backend: Any = load_backend(path)
    if getattr(type(backend), "get_user", None) is not ModelBackend.get_user:
        return None
    user_model = get_user_model()
    user = _users(user_model).first(user_model._meta.pk.to_python(session[SESSION_KEY]))
    if user is None or not backend.user_can_authenticate(user):
        return None
    is_valid = constant_time_compare(stored_hash, user.get_session_auth_hash())
    return user if is_valid else None


@cache
def _users(model: Any) -> CompiledQuery[Any]:
    return CompiledQuery(lambda pk: model._default_manager.filter(pk=pk), -1)


@cache
def _sessions(model: Any) -> CompiledQuery[Any]:
    return CompiledQuery(
        lambda key, now: model.objects.filter(session_key=key, expire_date__gt=now),
        "a key",
        datetime(1970, 1, 2, tzinfo=UTC),
    )


@cache
def _store(engine_name: str) -> Any:
    """The session store's class, reading by prepared query if it is Django's own
    database store or inherits its look-up."""
    store = import_module(engine_name).SessionStore
    load_by_orm = getattr(store, "_get_session_from_db", None)
    if load_by_orm is not vars(SessionStore)["_get_session_from_db"]:
        return store

    def load_by_prepared_query(self: Any) -> Any:
        sessions = _sessions(self.get_model_class())
        found = sessions.first(self.session_key, timezone.now())
        return found or load_by_orm(self)

    return type(
        "SessionStore", (store,), {"_get_session_from_db": load_by_prepared_query}
    )
