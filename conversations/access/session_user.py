"""Find the user of a session cookie, for WebSockets.

Channels' own middleware also wraps `send` to save the session on every message, but no
consumer changes the session.

Session and user are read each time, so a user who has signed out or been deactivated is
not accepted. A compiled query reads the session, because each connection and each of
its messages does so (decision 19).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from importlib import import_module
from types import SimpleNamespace
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.utils import timezone

from conversations.access.policy import terms
from conversations.access.session_marks import is_restricted, lacks_second_factor
from llm.db.statements import CompiledQuery

Headers = Iterable[tuple[bytes, bytes]]

_ENGINE = "conversations.access.session_store"
_SESSION = CompiledQuery[Session](
    lambda key, now: Session.objects.filter(pk=key, expire_date__gt=now),
    "a session",
    datetime(2000, 1, 1, tzinfo=UTC),
)


def user_from_headers(headers: Headers) -> Any:
    """The user of a request's session cookie, or AnonymousUser. Reads the database."""
    return user_from_session(session_key(headers))


def user_from_session(session_key: str | None) -> Any:
    """The user of a session, or AnonymousUser: also if the person must do something
    first. Reads the database."""
    session = _load_session(session_key) if session_key else {}
    if is_restricted(session) or lacks_second_factor(session):
        return AnonymousUser()
    found = user_of(session)
    if found.pk is not None and terms.is_due(session, found.pk):
        return AnonymousUser()
    return found


def user_of(session: Mapping[str, Any]) -> Any:
    """The user who signed in, of a session's data, or AnonymousUser if the session is
    not valid any more. Reads the database."""
    # `get_user` uses only the session of its request.
    request = SimpleNamespace(session=_UnchangedSession(session))
    return get_user(cast(HttpRequest, request))


class _UnchangedSession(dict[str, Any]):
    """A session's data, for reading only.

    Django gives a session of an older secret key a new key, and deletes one with an
    older password. But a WebSocket has no response that could set the new cookie.
    """

    def cycle_key(self) -> None:
        pass

    def flush(self) -> None:
        pass


def _load_session(session_key: str) -> MutableMapping[str, Any]:
    if settings.SESSION_ENGINE != _ENGINE:
        store = import_module(settings.SESSION_ENGINE).SessionStore
        return dict(store(session_key).items())
    session = _SESSION.first(session_key, timezone.now())
    data: dict[str, Any] = session.get_decoded() if session else {}
    return data


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
