"""The session store: Django's in the database, with a limit for unused sessions.

The row's `expire_date` is the earlier of the session's own end, which is set at the
sign-in, and `SESSION_IDLE_MINUTES` after its last use. So whatever reads a session sees
both limits without another query. `sessions.py` moves the date while it is used.
Source: https://docs.djangoproject.com/en/5.2/topics/http/sessions/#extending-database-backed-session-engines
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.utils import timezone


class SessionStore(db.SessionStore):
    def create_model_instance(self, data: dict[str, Any]) -> Any:
        row = super().create_model_instance(data)
        row.expire_date = before_idle(row.expire_date)
        return row

    @classmethod
    def get_model_class(cls) -> Any:
        return Session


def before_idle(end: datetime) -> datetime:
    """The earlier of `end` and the moment when a session used now is idle."""
    if not settings.SESSION_IDLE_MINUTES:
        return end
    return min(end, timezone.now() + timedelta(minutes=settings.SESSION_IDLE_MINUTES))


def prolong(session_key: str) -> None:
    """Move the end of a session that is used now. Reads and writes the database."""
    if not settings.SESSION_IDLE_MINUTES:
        return
    session = SessionStore(session_key)
    current = Session.objects.filter(pk=session_key, expire_date__gt=timezone.now())
    if session.load():
        current.update(expire_date=before_idle(session.get_expiry_date()))
