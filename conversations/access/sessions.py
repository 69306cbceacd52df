"""Records of signed-in sessions, which users can see and end.

Django's session rows have neither the browser nor the address. The middleware stores
both, and the time of the last request, at most once a minute.
"""

from __future__ import annotations

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.auth.signals import user_logged_out
from django.contrib.sessions.backends.db import SessionStore
from django.db import IntegrityError, InterfaceError, OperationalError, models
from django.db.models import OuterRef, Subquery
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.crypto import constant_time_compare

from conversations.access.client_address import client_address
from conversations.access.session_user import user_from_session

NOTE_INTERVAL = 60.0  # seconds between two writes for one session
MAX_REMEMBERED = 10_000  # sessions whose last write a process remembers

logger = logging.getLogger(__name__)


class SignedInSession(models.Model):
    """A user's session: its browser, its address and when it was last used."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="signed_in_sessions"
    )
    session_key = models.CharField(max_length=40, unique=True)
    user_agent = models.CharField(max_length=255, blank=True, default="")
    address = models.CharField(max_length=45, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()
        ordering = ["-last_used_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.browser}, {self.address}"

    @property
    def browser(self) -> str:
        return browser_of(self.user_agent)

    def end(self) -> None:
        _store()(self.session_key).delete()
        self.delete()


def sessions_of(user: Any) -> list[SignedInSession]:
    """The user's valid sessions, the last used first.

    One query if sessions are in the database; other stores need a look-up per session.
    """
    rows = SignedInSession.objects.filter(user_id=user.pk)
    store = _store()
    if not issubclass(store, SessionStore):
        return [row for row in rows if user_from_session(row.session_key).pk == user.pk]
    current = store.get_model_class().objects.filter(
        session_key=OuterRef("session_key"), expire_date__gt=timezone.now()
    )
    stored = rows.annotate(session_data=Subquery(current.values("session_data")))
    decode = store().decode
    return [
        row
        for row in stored.exclude(session_data=None)
        if _is_of(user, decode(row.session_data))
    ]


def _is_of(user: Any, session: Mapping[str, Any]) -> bool:
    """Whether the session is the user's and was made with the current password."""
    stored_hash = session.get(HASH_SESSION_KEY, "")
    return session.get(SESSION_KEY) == str(user.pk) and any(
        constant_time_compare(stored_hash, each)
        for each in (
            user.get_session_auth_hash(),
            *user.get_session_auth_fallback_hash(),
        )
    )


def forget_session(*, request: HttpRequest, **_: Any) -> None:
    """A receiver of `user_logged_out`."""
    session = getattr(request, "session", None)
    if session is not None and session.session_key:
        SignedInSession.objects.filter(session_key=session.session_key).delete()


user_logged_out.connect(forget_session)


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
    store = _store()
    if not issubclass(store, SessionStore):
        return 0
    noted = SignedInSession.objects.values("session_key")
    unnoted = store.get_model_class().objects.exclude(session_key__in=noted)
    current = unnoted.filter(expire_date__gt=timezone.now())
    theirs = [
        row.session_key
        for row in current.exclude(session_key=session_key or "").iterator()
        if row.get_decoded().get(SESSION_KEY) == str(user.pk)
    ]
    for key in theirs:
        store(key).delete()
    return len(theirs)


def _store() -> Any:
    return import_module(settings.SESSION_ENGINE).SessionStore


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


def note_sessions(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Middleware that stores the use of sessions.

    It must come before Django's session middleware, which saves the session.
    """

    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        session = getattr(request, "session", None)
        if session is None or not session.accessed:
            return response
        key, user_id = session.session_key, session.get(SESSION_KEY)
        if key and user_id and _last_writes.is_due(key, time.monotonic()):
            try:
                _note(request, key, user_id)
            except (OperationalError, InterfaceError) as exc:
                logger.warning("a session's use is not noted: %s", type(exc).__name__)
            except IntegrityError:
                logger.info("a session's use is not noted: its user was deleted")
        return response

    return respond


def _note(request: HttpRequest, session_key: str, user_id: str) -> None:
    meta, user = request.META, get_user_model()._meta.pk.to_python(user_id)
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
    row = SignedInSession(session_key=session_key, user_id=user, **values)
    SignedInSession.objects.bulk_create([row], ignore_conflicts=True)


_BROWSERS = (
    ("Edge", "Edg"),
    ("Opera", "OPR/"),
    ("Samsung Internet", "SamsungBrowser"),
    ("Firefox", "Firefox|FxiOS"),
    ("Chrome", "HeadlessChrome|Chrome/|CriOS"),
    ("Safari", "Safari/"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("macOS", "Mac OS X|Macintosh"),
    ("ChromeOS", "CrOS"),
    ("Linux", "Linux"),
)


def browser_of(user_agent: str) -> str:
    """A readable name, such as `Firefox on Windows`."""
    browser = _first(_BROWSERS, user_agent) or user_agent.partition(" ")[0][:40]
    system = _first(_SYSTEMS, user_agent)
    if not browser:
        return "Unknown browser"
    return f"{browser} on {system}" if system else browser


def _first(names: tuple[tuple[str, str], ...], user_agent: str) -> str:
    found = (name for name, sign in names if re.search(sign, user_agent))
    return next(found, "")
