"""One's own account: a new password, and where one is signed in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations.engine.maintenance.retention import clean_up
from conversations.models import SignedInSession
from conversations.models.signed_in_session import browser_of
from tests.conversations.page_scene import read
from tests.conversations.scene import PASSWORD, a_user

pytestmark = pytest.mark.django_db(transaction=True)

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15"
    " (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1"
)
NEW = "another correct horse"


@pytest.fixture
def ada() -> User:
    return a_user("ada")


def sign_in(name: str = "ada", agent: str = FIREFOX, address: str = "192.0.2.7") -> Any:
    browser = Client(headers={"User-Agent": agent}, REMOTE_ADDR=address)
    fields = {"username": name, "password": PASSWORD}
    assert browser.post("/login/", fields).status_code == 302
    return browser


def is_in(browser: Client) -> bool:
    return browser.get("/account/").status_code == 200


def change(browser: Client, old: str = PASSWORD, new: str = NEW) -> Any:
    fields = {"old_password": old, "new_password1": new, "new_password2": new}
    return browser.post("/account/", fields)


def test_a_new_password_ends_all_other_sessions(ada: User):
    here, there = sign_in(), sign_in(agent=PHONE)
    changed = change(here)
    assert changed.status_code == 302
    page = here.get(changed["Location"])
    assert "The password is changed. All other sessions are ended." in read(page)
    assert is_in(here)
    assert not is_in(there)
    assert SignedInSession.objects.count() == 1
    ada.refresh_from_db()
    assert ada.check_password(NEW)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("wrong", NEW, "Your old password was entered incorrectly."),
        (PASSWORD, "12345", "This password is too short."),
        (PASSWORD, "password", "This password is too common."),
    ],
)
def test_a_password_that_will_not_do_is_refused(ada: User, old: str, new: str, why):
    browser = sign_in()
    refused = change(browser, old, new)
    assert refused.status_code == 400
    assert why in read(refused)
    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)


def test_the_page_requires_a_session(ada: User):
    assert "/login/" in Client().get("/account/")["Location"]
    for path in ("/account/sessions/1/end/", "/account/sessions/end-others/"):
        assert "/login/" in Client().post(path)["Location"]
        assert sign_in().get(path).status_code == 405


def test_each_rule_for_passwords_has_words(ada: User):
    html = sign_in().get("/account/").content.decode()
    assert "Your password must contain" in html
    assert "<li></li>" not in html


def test_sessions_are_shown_with_browser_and_address(ada: User):
    here, _ = sign_in(), sign_in(agent=PHONE, address="2001:db8::9")
    words = read(here.get("/account/"))
    assert "Firefox on Linux this browser" in words
    assert "192.0.2.7" in words
    assert "Safari on iPhone" in words
    assert "2001:db8::9" in words
    assert "Account" in read(here.get("/"))


def test_one_session_is_ended_or_all_others(ada: User):
    here, there, elsewhere = sign_in(), sign_in(agent=PHONE), sign_in(agent="curl/8")
    row = SignedInSession.objects.get(user_agent=PHONE)
    here.post(f"/account/sessions/{row.pk}/end/")
    assert [is_in(browser) for browser in (here, there, elsewhere)] == [1, 0, 1]
    there = sign_in(agent=PHONE)
    here.post("/account/sessions/end-others/")
    assert [is_in(browser) for browser in (here, there, elsewhere)] == [1, 0, 0]


def test_sessions_that_were_never_noted_are_ended_too(ada: User):
    here, there = sign_in(), sign_in(agent=PHONE)
    a_user("grace")
    hers = sign_in("grace")
    own = here.cookies[settings.SESSION_COOKIE_NAME].value
    SignedInSession.objects.exclude(session_key=own).delete()  # as before the upgrade
    page = here.get("/account/")
    assert "End all other sessions" in read(page)
    here.post("/account/sessions/end-others/")
    assert [is_in(browser) for browser in (here, there, hers)] == [1, 0, 1]


def test_old_passwords_are_guessed_as_slowly_as_at_the_sign_in(ada: User):
    browser = sign_in()
    statuses = [change(browser, f"guess {number}").status_code for number in range(5)]
    assert statuses == [400, 400, 400, 400, 429]
    refused = change(browser)
    assert (refused.status_code, refused["Retry-After"]) == (429, "30")
    assert "Back to the account" in read(refused)
    ada.refresh_from_db()
    assert ada.check_password(PASSWORD)
    (row,) = AccessAttempt.objects.values_list()
    for secret in ("guess", PASSWORD, NEW):
        assert secret not in repr(row)


def test_wrong_sign_ins_and_wrong_old_passwords_count_together(ada: User):
    browser = sign_in()
    fields = {"username": "ada", "password": "wrong"}
    other = Client(headers={"User-Agent": FIREFOX}, REMOTE_ADDR="192.0.2.7")
    other.cookies = browser.cookies.copy()
    del other.cookies[settings.SESSION_COOKIE_NAME]
    for _ in range(4):
        assert other.post("/login/", fields).status_code == 200
    assert change(browser, "wrong").status_code == 429


def test_staff_who_delete_their_own_account_get_a_response():
    root = User.objects.create_superuser("root", password=PASSWORD)
    browser = Client(headers={"User-Agent": FIREFOX})
    browser.force_login(root)
    answer = browser.post(f"/admin/auth/user/{root.pk}/delete/", {"post": "yes"})
    assert answer.status_code == 302
    assert not User.objects.exists()
    assert not SignedInSession.objects.exists()


def test_a_user_cannot_end_sessions_of_others(ada: User):
    a_user("grace")
    hers, browser = sign_in("grace"), sign_in()
    row = SignedInSession.objects.get(user__username="grace")
    assert browser.post(f"/account/sessions/{row.pk}/end/").status_code == 404
    browser.post("/account/sessions/end-others/")
    assert is_in(hers)


def test_sessions_that_are_over_are_not_shown(ada: User):
    here, there = sign_in(), sign_in(agent=PHONE)
    there.post("/logout/")
    assert "iPhone" not in read(here.get("/account/"))
    assert SignedInSession.objects.count() == 1


def test_to_look_at_sessions_takes_the_same_queries_and_deletes_none(
    ada: User, django_assert_num_queries: Any
):
    here, there = sign_in(), sign_in(agent=PHONE)
    here.get("/account/")
    with CaptureQueriesContext(connection) as queries:
        here.get("/account/")
    count = len(queries)
    for _ in range(5):
        sign_in(agent=PHONE)
    Session.objects.filter(pk=there.session.session_key).delete()
    with django_assert_num_queries(count):
        page = read(here.get("/account/"))
    assert page.count("iPhone") == 5
    assert SignedInSession.objects.count() == 7


def test_a_password_that_staff_set_ends_the_sessions_that_are_shown(ada: User):
    here = sign_in()
    sign_in(agent=PHONE)
    ada.set_password(NEW)
    ada.save()
    here.post("/login/", {"username": "ada", "password": NEW})
    assert "iPhone" not in read(here.get("/account/"))


def test_the_last_use_is_written_once_a_minute(ada: User):
    browser = sign_in()
    page = "/tokens/"
    browser.get(page)
    then = SignedInSession.objects.get().last_used_at
    browser.get(page)
    assert SignedInSession.objects.get().last_used_at == then


def test_programs_have_no_sessions(ada: User):
    from tests.conversations.scene import bearer

    assert Client(headers=bearer(ada)).get("/api/models/").status_code == 200
    assert not SignedInSession.objects.exists()


def test_records_of_old_sessions_are_erased(ada: User):
    sign_in()
    age = timedelta(seconds=settings.SESSION_COOKIE_AGE + 1)
    SignedInSession.objects.update(last_used_at=timezone.now() - age)
    list(clean_up())
    assert not SignedInSession.objects.exists()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        (PHONE, "Safari on iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537 Edg/140", None),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", "Unknown browser"),
    ],
)
def test_browsers_have_names(agent: str, words: str | None):
    assert browser_of(agent) == (words or "Edge on Windows")
