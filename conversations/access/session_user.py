"""Find the user of a session cookie, for WebSockets.

Channels' own middleware also wraps `send` to save the session on every message, but no
consumer changes the session.

Session and user are read each time, so a user who has signed out or been deactivated is
not accepted. Both are read by compiled queries, because each connection and each of its
messages reads them (decision 19).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from secrets import compare_digest
from types import SimpleNamespace
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_user,
)
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.utils import timezone

from conversations.access.policy import terms
from conversations.access.session_marks import is_restricted, lacks_second_factor
from llm.db.statements import CompiledQuery

Headers = Iterable[tuple[bytes, bytes]]

_ENGINE = "conversations.access.session_store"
_BACKEND = "django.contrib.auth.backends.ModelBackend"
_SESSION = CompiledQuery[Session](
    lambda key, now: Session.objects.filter(pk=key, expire_date__gt=now),
    "a session",
    datetime(2000, 1, 1, tzinfo=UTC),
)
_USER = CompiledQuery[User](lambda pk: User.objects.filter(pk=pk, is_active=True), -1)


def user_from_headers(headers: Headers) -> Any:
    """The user of a request's session cookie, or AnonymousUser. Reads the database."""
    return user_from_session(session_key(headers))


def user_from_session(session_key: str | None) -> Any:
    """The user of a session, or AnonymousUser: also if the person must do something
    first. Reads the database."""
    if session_key and (user := _find_user(session_key)) is not None:
        return user
    session = import_module(settings.SESSION_ENGINE).SessionStore(session_key)
    if is_restricted(session) or lacks_second_factor(session):
        return AnonymousUser()
    # `get_user` uses only the session of its request.
    found = get_user(cast(HttpRequest, SimpleNamespace(session=session)))
    if found.pk is not None and terms.is_due(session, found.pk):
        return AnonymousUser()
    return found


def _find_user(session_key: str) -> User | None:
    """The user of a valid session as this project creates it. None for any other, about
    which Django decides: it may be of another backend or signed with an older secret.
    """
    if settings.SESSION_ENGINE != _ENGINE:
        return None
    session = _SESSION.first(session_key, timezone.now())
    values = session.get_decoded() if session else {}
    backend = values.get(BACKEND_SESSION_KEY)
    if backend != _BACKEND or backend not in settings.AUTHENTICATION_BACKENDS:
        return None
    if is_restricted(values) or lacks_second_factor(values):
        return None
    if terms.is_due(values, int(values[SESSION_KEY])):
        return None  # Django's way, below, finds the same
    user = _USER.first(int(values[SESSION_KEY]))
    auth_hash = values.get(HASH_SESSION_KEY, "")
    expected = user.get_session_auth_hash() if user else ""
    if user and compare_digest(auth_hash.encode(), expected.encode()):
        return user
    return None


def session_key(headers: Headers) -> str | None:
    for name, value in headers:
        if name == b"cookie":
            try:
                cookies = SimpleCookie(value.decode("latin-1"))
            except CookieError:
                return None
            found = cookies.get(settings.SESSION_COOKIE_NAME)
            # PostgreSQL has no text with NUL; a cookie may quote one.
            return found.value if found and "\0" not in found.value else None
    return None
