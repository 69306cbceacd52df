"""The terms of use as this process knows them, and whether a user has accepted them.

The engine reads the newest version every few seconds. A session remembers which version
its user has accepted, so a request asks the database only after a new version.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.signals import post_delete, post_save

from conversations.access.errors import TermsNotAccepted
from conversations.access.session_marks import TERMS, Session
from conversations.models import TermsAcceptance, TermsVersion

PATH = "/terms/"
MAX_REMEMBERED = 100_000  # users; then they are looked up again


class _State:
    """Plain attributes, as every request to the gateway reads them."""

    number: int | None = None  # of the newest version; 0: none; None: not read yet
    #: Whether tokens of those who have not accepted are refused; None: not read yet.
    binds_tokens: bool | None = None
    #: Owners of tokens who have accepted the newest version.
    accepted: set[int] = set()


state = _State()


def load() -> int:
    """Read the newest version's number. One query."""
    newest = TermsVersion.objects.newest()
    number = newest.number if newest is not None and newest.number else 0
    if number != state.number:
        state.accepted = set()
    state.number = number
    state.binds_tokens = newest is not None and newest.applies_to_tokens
    return number


def forget(**_: Any) -> None:
    """A receiver of signals: the next request reads the version again."""
    state.number = state.binds_tokens = None
    state.accepted = set()


def newest_number() -> int:
    return load() if state.number is None else state.number


def has_accepted(user_id: int, number: int) -> bool:
    rows = TermsAcceptance.objects.filter(user=user_id, terms__number__gte=number)
    return rows.exists()


def is_due(session: Session, user_id: int) -> bool:
    """Whether the session's user must accept the terms first."""
    number = newest_number()
    if not number or session.get(TERMS, 0) >= number:
        return False
    return not has_accepted(user_id, number)


def mark_accepted(session: Session) -> None:
    """The session's user has accepted the newest version."""
    session[TERMS] = newest_number()


def accept(newest: TermsVersion, user: Any, session: Session) -> None:
    with transaction.atomic():
        newest.accept(user)
    session[TERMS] = newest.number


def check_token(user_id: int) -> None:
    """For a request with an access token of this user. Raises TermsNotAccepted."""
    number = newest_number()
    if not state.binds_tokens or user_id in state.accepted:
        return
    if not has_accepted(user_id, number):
        raise not_accepted()
    if len(state.accepted) >= MAX_REMEMBERED:
        state.accepted = set()
    state.accepted.add(user_id)


def not_accepted() -> TermsNotAccepted:
    link = f"{settings.PUBLIC_URL.rstrip('/')}{PATH}"
    return TermsNotAccepted(f"Read and accept the terms of use at {link} first.")


for _signal in (post_save, post_delete):
    _signal.connect(forget, sender=TermsVersion)
