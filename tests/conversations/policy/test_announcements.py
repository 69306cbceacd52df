"""Announcements: shown to whom they concern, while they hold, until dismissed."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.access.policy import announcements
from conversations.models import Announcement, AnnouncementDismissal
from conversations.transfer.account import write_account
from tests.conversations.scene import a_user, program, signed_in, staff

pytestmark = pytest.mark.django_db(transaction=True)

HOSTILE = (
    "Down <script>alert(1)</script> **at noon**, see"
    " [it](javascript:alert(2)) ![x](https://evil.example/pixel.png)"
)


@pytest.fixture(autouse=True)
def nothing_remembered():
    announcements.forget()
    yield
    announcements.forget()


@pytest.fixture
def ada() -> User:
    return a_user()


def announce(text: str = "Back **soon**", *groups: Group, **fields: Any) -> Any:
    row = Announcement.objects.create(text=text, **fields)
    row.groups.set(groups)
    return row


def shown(client: Client) -> list[str]:
    found = client.get("/api/announcements/").json()["results"]
    return [each["text"] for each in found]


def test_every_chat_page_shows_it_as_safe_markdown(ada: User):
    client = signed_in(ada)
    announce(HOSTILE, level="critical")
    for path in ("/", "/library/", "/settings/", "/account/", "/tokens/", "/nowhere/"):
        page = client.get(path).content.decode()
        assert 'class="announcement is-critical"' in page, path
        assert "<strong>at noon</strong>" in page
        assert "<script>alert(1)" not in page
        assert 'href="javascript:' not in page
        assert "<img" not in page.partition("announcement-text")[2][:900]
    assert "at noon" not in Client().get("/login/").content.decode()
    # The service worker stores this page, also for the next person.
    assert "at noon" not in client.get("/offline/").content.decode()


def test_programs_read_it_as_well(ada: User):
    announce("Back soon", level="warning")
    (found,) = program(ada).get("/api/announcements/").json()["results"]
    assert (found["text"], found["level"]) == ("Back soon", "warning")


@pytest.mark.parametrize(
    ("starts", "ends", "is_shown"),
    [(-60, None, True), (-60, 60, True), (60, None, False), (-120, -60, False)],
)
def test_it_is_shown_within_its_time(ada, starts: int, ends: int | None, is_shown):
    now = timezone.now()
    announce(
        starts_at=now + timedelta(minutes=starts),
        ends_at=None if ends is None else now + timedelta(minutes=ends),
    )
    assert bool(shown(signed_in(ada))) is is_shown


def test_it_appears_and_ends_though_no_row_changes(ada, monkeypatch):
    now = timezone.now()
    row = announce(starts_at=now + timedelta(hours=1), ends_at=now + timedelta(hours=2))
    announcements.load()
    texts = []
    for hours in (0, 1, 2):
        at = now + timedelta(hours=hours)
        monkeypatch.setattr(announcements.timezone, "now", lambda at=at: at)
        texts.append([each.text for each in announcements.shown_to(ada)])
    assert texts == [[], [row.text], []]


def test_only_members_of_its_groups_see_it(ada: User):
    sales, board = (Group.objects.create(name=name) for name in ("Sales", "Board"))
    announce("To all")
    announce("To some", sales, board)
    bob = a_user("bob")
    bob.groups.add(board)
    assert sorted(shown(signed_in(bob))) == ["To all", "To some"]
    assert shown(signed_in(ada)) == ["To all"]
    secret = Announcement.objects.get(text="To some")
    client = signed_in(ada)
    assert client.post(f"/announcements/{secret.pk}/dismiss/").status_code == 404
    assert not AnnouncementDismissal.objects.exists()
    # Who has left the group sees it no more; a group that is gone widens nothing.
    bob.groups.clear()
    assert shown(signed_in(bob)) == ["To all"]


def test_who_dismisses_it_is_alone_in_that(ada: User):
    row = announce()
    client = Client()
    client.force_login(ada)
    page = client.get("/library/?q=x").content.decode()
    assert '<input type="hidden" name="next" value="/library/?q=x">' in page
    url = f"/announcements/{row.pk}/dismiss/"
    answer = client.post(url, {"next": "/library/?q=x"})
    assert answer["Location"] == "/library/?q=x"
    assert shown(client) == []
    own = json.loads(write_account(ada))["dismissed_announcements"]
    assert [each["text"] for each in own] == [row.text]
    client.force_login(a_user("bob"))  # in the same browser
    assert shown(client) == [row.text]
    ada.delete()
    assert not AnnouncementDismissal.objects.exists()


@pytest.mark.parametrize("wanted", ["https://evil.example/", "//evil", "/\\evil", ""])
def test_dismissing_leads_to_pages_of_this_server_only(ada: User, wanted: str):
    row = announce()
    url = f"/announcements/{row.pk}/dismiss/"
    assert signed_in(ada).post(url, {"next": wanted})["Location"] == "/"


def test_some_cannot_be_dismissed_and_not_by_programs(ada: User):
    fixed, loose = announce("Fixed", dismissible=False), announce("Loose")
    client = signed_in(ada)
    page = client.get("/").content.decode()
    assert page.count("/dismiss/") == 1
    for path in ("/announcements/%d/dismiss/", "/api/announcements/%d/dismiss/"):
        assert client.post(path % fixed.pk).status_code == 404
    path = f"/api/announcements/{loose.pk}/dismiss/"
    assert program(ada).post(path).status_code == 403
    assert client.post(path).status_code == 204
    assert shown(client) == ["Fixed"]


def test_it_comes_back_when_its_text_changes(ada: User):
    rights = ("change_announcement", "view_announcement")
    olga, client = signed_in(staff("olga", *rights)), signed_in(ada)
    row = announce("Old")
    row.dismiss(ada)
    url = reverse("admin:conversations_announcement_change", args=[row.pk])
    begins = row.starts_at
    form = {
        "level": "info",
        "starts_at_0": begins.strftime("%Y-%m-%d"),
        "starts_at_1": begins.strftime("%H:%M:%S"),
        "dismissible": "on",
    }
    assert olga.post(url, {**form, "text": "Old"}).status_code == 302
    assert shown(client) == []
    assert olga.post(url, {**form, "text": "New"}).status_code == 302
    assert shown(client) == ["New"]


def test_staff_with_other_rights_announce_nothing():
    client = signed_in(staff("olga", "view_announcement"))
    url = reverse("admin:conversations_announcement_add")
    assert client.post(url, {"text": "Hi"}).status_code == 403


def test_pages_without_announcements_ask_for_none(ada: User, django_capture_queries):
    client = signed_in(ada)
    client.get("/settings/")
    with django_capture_queries() as seen:
        client.get("/settings/")
    assert not [q for q in seen.captured_queries if "announcement" in (q["sql"] or "")]


@pytest.fixture
def django_capture_queries(django_assert_max_num_queries):
    return lambda: django_assert_max_num_queries(100)
