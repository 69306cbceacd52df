"""Receivers of signals that mark sessions: see conversations.access.session_marks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from allauth.account.signals import authentication_step_completed, password_reset
from allauth.mfa.adapter import get_adapter
from allauth.mfa.signals import authenticator_added, authenticator_removed
from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.utils import timezone

from conversations.access.session_marks import (
    PASSWORD_CHANGE,
    SECOND_FACTOR,
    mark_proven,
)
from conversations.access.sessions import end_others
from conversations.models import SignedInSession
from project.accounts.models import RequiredPasswordChange


def connect() -> None:
    user_logged_in.connect(mark_sign_in)
    authentication_step_completed.connect(mark_step)
    authenticator_added.connect(mark_new_factor)
    authenticator_removed.connect(unmark_removed_factor)
    password_reset.connect(end_sessions)


def mark_sign_in(*, request: Any, user: Any, **_: Any) -> None:
    mark_proven(request.session)
    # A date is not moved by later changes of the session, as a number of seconds is.
    end = timezone.now() + timedelta(hours=settings.SESSION_HOURS)
    request.session.set_expiry(end)
    required = RequiredPasswordChange.objects.filter(user=user)
    if user.has_usable_password() and required.exists():
        request.session[PASSWORD_CHANGE] = True


def mark_step(
    *, request: Any, method: str, reauthenticated: bool = False, **_: Any
) -> None:
    if reauthenticated:
        _replace_key(request.session)
        mark_proven(request.session)
    if method == "mfa":
        request.session[SECOND_FACTOR] = True


def _replace_key(session: Any) -> None:
    """Change the session's key: the old one was valid before the proof of identity."""
    old = session.session_key
    session.cycle_key()
    rows = SignedInSession.objects.filter(session_key=old)
    rows.update(session_key=session.session_key)


def mark_new_factor(*, request: Any, **_: Any) -> None:
    request.session[SECOND_FACTOR] = True


def unmark_removed_factor(*, request: Any, user: Any, **_: Any) -> None:
    """Other sessions end: they may have the mark of the factor that was removed."""
    if not get_adapter().is_mfa_enabled(user):
        request.session.pop(SECOND_FACTOR, None)
    end_others(user, request.session.session_key)


def end_sessions(*, user: Any, **_: Any) -> None:
    """After a reset by mail, end the sessions that began with the old password."""
    end_others(user, None)
