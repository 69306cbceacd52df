"""Sessions end after their hours, and after a time without use."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings as project_settings
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from conversations.access import sessions
from conversations.access.session_user import user_from_session
from tests.conversations.scene import a_user, signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    return signed_in(a_user("ada"))


@pytest.fixture(autouse=True)
def each_use_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "NOTE_INTERVAL", 0.0)


def row_of(client: Client) -> Session:
    key = client.cookies[project_settings.SESSION_COOKIE_NAME].value
    return Session.objects.get(pk=key)


def shift(client: Client, **earlier: float) -> None:
    """As if so much time had passed since the last use."""
    row = row_of(client)
    Session.objects.filter(pk=row.pk).update(
        expire_date=row.expire_date - timedelta(**earlier)
    )


def is_signed_in(client: Client) -> bool:
    key = client.cookies[project_settings.SESSION_COOKIE_NAME].value
    by_socket = user_from_session(key).is_authenticated
    by_page = client.get("/account/").status_code == 200
    assert by_socket == by_page
    return by_page


def minutes_left(client: Client) -> float:
    left: timedelta = row_of(client).expire_date - timezone.now()
    return left.total_seconds() / 60


def test_its_end_is_fixed_at_the_sign_in(client: Client):
    end = row_of(client).expire_date
    session = client.session
    session["something"] = "changed"
    session.save()
    client.get("/account/")
    assert abs(row_of(client).expire_date - end) < timedelta(seconds=2)
    assert abs(minutes_left(client) / 60 - 14 * 24) < 0.1
    shift(client, days=15)
    assert not is_signed_in(client)


def test_an_unused_session_ends(settings: Any):
    settings.SESSION_IDLE_MINUTES = 30
    client = signed_in(a_user("ada"))
    assert 29 < minutes_left(client) <= 30
    shift(client, minutes=20)
    assert is_signed_in(client)  # and is used by that
    assert 29 < minutes_left(client) <= 30
    shift(client, minutes=31)
    assert not is_signed_in(client)


def test_use_does_not_move_the_end_of_the_whole_session(settings: Any):
    settings.SESSION_IDLE_MINUTES = 30
    client = signed_in(a_user("ada"))
    session = client.session
    end: datetime = timezone.now() + timedelta(minutes=5)
    session.set_expiry(end)
    session.save()
    assert is_signed_in(client)
    assert minutes_left(client) <= 5


def test_messages_over_a_socket_are_use(settings: Any):
    settings.SESSION_IDLE_MINUTES = 30
    client = signed_in(a_user("ada"))
    shift(client, minutes=20)
    sessions.note_message(row_of(client).pk)
    assert 29 < minutes_left(client) <= 30
    shift(client, minutes=31)
    sessions.note_message(row_of(client).pk)  # too late
    assert not is_signed_in(client)
