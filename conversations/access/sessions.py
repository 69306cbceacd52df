"""Records of signed-in sessions, which users can see and end.

Django's session rows have neither the browser nor the address. A middleware stores
both, and the time of the last request, at most once a minute.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.db import IntegrityError
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest
from django.utils import timezone

from conversations.access.admission import client_address
from conversations.access.session_store import prolong
from conversations.access.session_user import user_from_session, user_of
from conversations.audit.record import record_event
from conversations.models import Conversation
from conversations.models.signed_in_session import SignedInSession, session_store
from llm.db.outages import UNREACHABLE

NOTE_INTERVAL = 60.0  # seconds between two writes for one session
MAX_REMEMBERED = 10_000  # sessions whose last write a process remembers

logger = logging.getLogger(__name__)


def sessions_of(user: Any) -> list[SignedInSession]:
    """The user's valid sessions, the last used first.

    One query if sessions are in the database; other stores need a look-up per session.
    """
    rows = SignedInSession.objects.filter(user_id=user.pk)
    store = session_store()
    if not issubclass(store, SessionStore):
        return [row for row in rows if user_from_session(row.session_key).pk == user.pk]
    current = store.get_model_class().objects.filter(
        session_key=OuterRef("session_key"), expire_date__gt=timezone.now()
    )
    stored = rows.annotate(session_data=Subquery(current.values("session_data")))
    decode, hashes = store().decode, _password_hashes(user)
    return [
        row
        for row in stored.exclude(session_data=None)
        if _has_hash(decode(row.session_data), hashes)
    ]


def _password_hashes(user: Any) -> set[str]:
    """Those that Django stores in a session at the sign-in: made of the user's current
    password and a secret key of the server."""
    return {user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()}


def _has_hash(session: Mapping[str, Any], hashes: set[str]) -> bool:
    return any(isinstance(each, str) and each in hashes for each in session.values())


def forget_session(*, request: HttpRequest, **_: Any) -> None:
    """A receiver of `user_logged_out`."""
    session = getattr(request, "session", None)
    if session is not None and session.session_key:
        SignedInSession.objects.filter(session_key=session.session_key).delete()


def end_temporary_chats(*, instance: SignedInSession, **_: Any) -> None:
    """A receiver of `pre_delete`: the session's temporary conversations end with it,
    however it ends; a job erases them."""
    rows = Conversation.objects.filter(session=instance, deleted_at=None)
    for row in rows:
        row.delete_softly()


def sign_out_session(row: SignedInSession) -> None:
    """End one session at its user's wish."""
    key = row.pk
    row.end()
    target = ("conversations.signedinsession", key)
    record_event("sign_out", target=target, subject=row.user_id)


def sign_out_others(user: Any, session_key: str | None) -> None:
    """As `end_others`, at the user's wish."""
    count = end_others(user, session_key)
    details = {"other sessions": count}
    record_event("sign_out", target=user, subject=user, details=details)


def end_others(user: Any, session_key: str | None) -> int:
    """End all other sessions of a user and return their number."""
    others = SignedInSession.objects.filter(user_id=user.pk)
    rows = list(others.exclude(session_key=session_key or ""))
    for row in rows:
        row.end()
    return len(rows) + _end_unnoted(user, session_key)


def _end_unnoted(user: Any, session_key: str | None) -> int:
    """End the user's sessions that have no row here, and return their number.

    These were not used since the upgrade that introduced this table. The user is in the
    session's data, which can be listed only if sessions are in the database.
    """
    store = session_store()
    if not issubclass(store, SessionStore):
        return 0
    noted = SignedInSession.objects.values("session_key")
    unnoted = store.get_model_class().objects.exclude(session_key__in=noted)
    current = unnoted.filter(expire_date__gt=timezone.now())
    hashes = _password_hashes(user)
    theirs = [
        row.session_key
        for row in current.exclude(session_key=session_key or "").iterator()
        if _has_hash(row.get_decoded(), hashes)
    ]
    for key in theirs:
        store(key).delete()
    return len(theirs)


class _LastWrites:
    """When this process last stored the use of each session."""

    def __init__(self) -> None:
        self._written_at: OrderedDict[str, float] = OrderedDict()

    def is_due(self, session_key: str, now: float) -> bool:
        last = self._written_at.get(session_key)
        if last is not None and now - last < NOTE_INTERVAL:
            return False
        self._written_at[session_key] = now
        self._written_at.move_to_end(session_key)
        while len(self._written_at) > MAX_REMEMBERED:
            self._written_at.popitem(last=False)
        return True


_last_writes = _LastWrites()


def note_use(request: HttpRequest) -> None:
    """Store that the request has used its session, unless that was stored lately."""
    session = request.session
    key = session.session_key
    if key and _last_writes.is_due(key, time.monotonic()):
        try:
            user_id = _user_id_of(request)
            if user_id is None:
                return
            _note(request, key, user_id)
            prolong(key)
        except UNREACHABLE as exc:
            logger.warning(
                "the last use of a session was not stored: %s", type(exc).__name__
            )
        except IntegrityError:
            logger.info(
                "the last use of a session was not stored: its user was deleted"
            )


def _user_id_of(request: HttpRequest) -> int | None:
    """The session's user: `request.user`, unless an access token names another."""
    if getattr(request, "auth", None) is None:
        found: int | None = request.user.pk
    else:
        found = user_of(dict(request.session.items())).pk
    return found


def note_message(session_key: str) -> None:
    """A message over a WebSocket uses its session, too; pages may stay open for long
    without any other request."""
    if not settings.SESSION_IDLE_MINUTES:
        return
    if _last_writes.is_due(session_key, time.monotonic()):
        row = SignedInSession.objects.filter(session_key=session_key)
        row.update(last_used_at=timezone.now())
        prolong(session_key)


def _note(request: HttpRequest, session_key: str, user_id: int) -> None:
    meta = request.META
    address = client_address(
        meta.get("REMOTE_ADDR") or "", meta.get("HTTP_X_FORWARDED_FOR") or ""
    )
    now = timezone.now()
    values = {
        "user_agent": request.headers.get("User-Agent", "").replace("\0", "")[:255],
        "address": address.replace("\0", "")[:45],
        "last_used_at": now,
    }
    if SignedInSession.objects.filter(session_key=session_key).update(**values):
        return
    row = SignedInSession(session_key=session_key, user_id=user_id, **values)
    SignedInSession.objects.bulk_create([row], ignore_conflicts=True)
