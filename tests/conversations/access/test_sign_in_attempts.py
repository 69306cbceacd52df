"""Wrong passwords, at the pages' entry and at the admin's."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.translation.trans_real import DjangoTranslation

from conversations.access.sign_in_attempts import NAMES, NAMES_LONGEST
from tests.conversations.scene import PASSWORD, a_user, bearer, signed_in, staff

pytestmark = pytest.mark.django_db(transaction=True)

WRONG = "a-wrong-password-of-these-tests"
HERE, THERE = "192.0.2.7", "198.51.100.9"
ENTRIES = ["/login/", "/admin/login/"]


class Clock(datetime):
    """The clock of Django and of all that asks Django: it stands still."""

    passed = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Clock:
        return cls(2026, 11, 23, 12, tzinfo=tz) + cls.passed


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "passed", timedelta())
    monkeypatch.setattr(timezone, "datetime", Clock)


@pytest.fixture(autouse=True)
def ada(clock: None) -> User:
    return a_user("ada", is_staff=True)


def sign_in(
    entry: str = "/login/",
    password: str = PASSWORD,
    *,
    name: str = "ada",
    address: str = HERE,
    browser: Client | None = None,
    **headers: str,
) -> Any:
    return (browser or Client()).post(
        entry,
        {"username": name, "password": password},
        REMOTE_ADDR=address,
        headers=headers,
    )


def fail(times: int, entry: str = "/login/", **how: Any) -> Any:
    for _ in range(times):
        response = sign_in(entry, WRONG, **how)
    return response


def let_pass(seconds: float) -> None:
    Clock.passed += timedelta(seconds=seconds)


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_fifth_wrong_password_locks_the_pair_for_half_a_minute(entry: str):
    assert fail(4, entry).status_code == 200
    refused = fail(1, entry)
    assert (refused.status_code, refused["Retry-After"]) == (429, "30")
    refused = sign_in(entry)
    assert (refused.status_code, refused["Retry-After"]) == (429, "30")
    assert "Try again in 30 seconds" in refused.content.decode()
    let_pass(30)
    assert sign_in(entry).status_code == 302


def test_both_entries_count_together():
    fail(3, ENTRIES[0])
    assert fail(2, ENTRIES[1]).status_code == 429


def test_the_delay_doubles_up_to_an_hour():
    delays = [fail(5)["Retry-After"]]
    for _ in range(8):
        let_pass(3600)
        delays.append(fail(1)["Retry-After"])
    expected = ["30", "60", "120", "240", "480", "960", "1920", "3600", "3600"]
    assert delays == expected
    assert "Try again in 1 hour" in sign_in().content.decode()


def test_attempts_during_the_delay_neither_prolong_it_nor_count():
    fail(5)
    let_pass(20)
    assert fail(3)["Retry-After"] == "10"
    let_pass(10)
    assert sign_in().status_code == 302


def test_failures_are_forgotten_by_success_and_after_a_day():
    fail(4)
    assert sign_in().status_code == 302
    assert fail(4).status_code == 200
    let_pass(24 * 3600 + 1)
    assert fail(4).status_code == 200
    assert AccessAttempt.objects.get().failures_since_start == 4


@pytest.mark.parametrize("entry", ENTRIES)
def test_other_addresses_are_not_locked_out(entry: str):
    assert fail(8, entry).status_code == 429
    assert sign_in(entry, address=THERE).status_code == 302


def test_other_users_at_the_same_address_are_not_locked_out():
    a_user("grace")
    for name in ("ada", "root", "nobody"):
        fail(6, name=name)
    assert sign_in(name="grace").status_code == 302


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_known_browser_is_not_locked_out_by_others(entry: str):
    browser = Client()
    assert sign_in(entry, browser=browser).status_code == 302
    browser.post("/logout/")
    assert fail(6).status_code == 429
    assert sign_in(entry).status_code == 429
    assert fail(4, browser=browser).status_code == 200
    assert sign_in(entry, browser=browser).status_code == 302


def test_a_known_browser_has_no_more_tries_than_others():
    browser = Client()
    sign_in(browser=browser)
    browser.post("/logout/")
    assert fail(5, browser=browser).status_code == 429
    assert sign_in(browser=browser).status_code == 429
    a_user("grace")
    assert fail(5, browser=browser, name="grace").status_code == 429


def test_other_user_agents_and_neighbouring_addresses_are_the_same():
    for number in range(4):
        sign_in(
            password=WRONG,
            address=f"2001:db8:0:1::{number}",
            **{"user-agent": f"agent {number}"},
        )
    refused = sign_in(password=WRONG, address="2001:db8:0:1:ffff::9")
    assert refused.status_code == 429
    assert sign_in(address="2001:db8:0:2::1").status_code == 302


@pytest.mark.parametrize("is_behind", [False, True])
def test_the_address_comes_from_a_trusted_proxy(is_behind: bool, settings: Any):
    settings.BEHIND_HTTPS = is_behind
    for number in range(5):
        forwarded = f"203.0.113.{number}, {HERE}, {THERE}"
        refused = sign_in(
            password=WRONG, address="10.0.0.1", **{"x-forwarded-for": forwarded}
        )
    assert refused.status_code == 429
    address = AccessAttempt.objects.get().ip_address
    assert address == (THERE if is_behind else "10.0.0.1")
    other = {"x-forwarded-for": f"{THERE}, {HERE}"}
    there = sign_in(address="10.0.0.1", **other)
    assert there.status_code == (302 if is_behind else 429)


@pytest.mark.parametrize(
    ("address", "stored"),
    [
        ("192.0.2.7:4711", HERE),
        ("[2001:db8::9]:4711", "2001:db8::"),
        ("::ffff:192.0.2.7", HERE),
        ("fe80::1%eth0", "fe80::"),
        ("nonsense", "0.0.0.0"),
        ("\x00", "0.0.0.0"),
    ],
)
def test_any_address_can_be_stored(address: str, stored: str, settings: Any):
    settings.BEHIND_HTTPS = True
    assert fail(1, **{"x-forwarded-for": address}).status_code == 200
    assert AccessAttempt.objects.get().ip_address == stored


def test_programs_receive_json():
    fail(5)
    refused = sign_in(accept="application/json")
    assert (refused.status_code, refused["Retry-After"]) == (429, "30")
    error = refused.json()["error"]
    assert error["code"] == "too_many_sign_in_attempts"
    assert "30 seconds" in error["message"]


def test_people_are_refused_in_their_language_and_programs_in_english(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(
        DjangoTranslation,
        "ngettext",
        lambda self, one, many, number: f"{self.language()}: {many}",
    )
    fail(5)
    text = "Too many failed sign-ins. Try again in 30 seconds."
    page = sign_in(**{"accept-language": "de"})
    assert f"de: {text}" in page.text
    refused = sign_in(accept="application/json", **{"accept-language": "de"})
    assert refused.json()["error"]["message"] == f"en: {text}"


def test_each_attempt_is_on_record_and_in_the_log_without_its_password(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.INFO)
    fail(6)
    sign_in(address=THERE)
    assert [row.locked_out for row in AccessFailureLog.objects.order_by("pk")] == [
        *[False] * 4,
        True,
    ]
    assert AccessLog.objects.get().ip_address == THERE
    messages = [
        r.getMessage()
        for r in caplog.records
        if r.name == "conversations.access.session_user"
    ]
    assert messages == [
        *["sign-in as 'ada' from 192.0.2.7 failed: wrong name or password"] * 5,
        "sign-in as 'ada' from 192.0.2.7 refused: too many failures",
        "sign-in as 'ada' from 198.51.100.9",
    ]
    (row,) = AccessAttempt.objects.values_list()
    for text in (repr(row), caplog.text):
        assert WRONG not in text
        assert PASSWORD not in text


def test_an_unknown_username_is_not_logged(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    fail(6, name=PASSWORD)  # typed into the wrong field
    assert PASSWORD not in caplog.text
    messages = [
        r.getMessage()
        for r in caplog.records
        if r.name == "conversations.access.session_user"
    ]
    assert messages == [
        *["sign-in as an unknown name from 192.0.2.7 failed: wrong name or password"]
        * 5,
        "sign-in as an unknown name from 192.0.2.7 refused: too many failures",
    ]


def test_an_unknown_username_is_stored_as_a_keyed_hash(settings: Any):
    fail(5, name=PASSWORD)
    assert fail(1, name=PASSWORD).status_code == 429
    fail(1, name="another")
    rows = [*AccessAttempt.objects.values(), *AccessFailureLog.objects.values()]
    assert PASSWORD not in repr(rows)
    names = set(AccessAttempt.objects.values_list("username", flat=True))
    assert len(names) == 2
    settings.SECRET_KEY = "another secret key of these tests"
    fail(1, name="another")
    assert AccessAttempt.objects.count() == 3


def test_spellings_of_an_unknown_username_count_together():
    """A directory takes them for one name."""
    for name in ("grace hopper", "Grace Hopper", " grace  hopper", "GRACE HOPPER "):
        assert fail(1, name=name).status_code == 200
    fail(1, name="grace\thopper")
    assert fail(1, name="Grace hopper").status_code == 429
    assert AccessAttempt.objects.count() == 1


# One address, many accounts


def stuff(names: int, **how: Any) -> list[int]:
    """Each name once. The statuses."""
    return [fail(1, name=f"user {each}", **how).status_code for each in range(names)]


@pytest.mark.slow
def test_an_address_that_tries_many_names_must_wait_longer_and_longer():
    assert stuff(NAMES + 1) == [*[200] * NAMES, 429]
    waits = []
    for number in range(NAMES, NAMES + 40):
        waits.append(int(fail(1, name=f"user {number}")["Retry-After"]))
        let_pass(waits[-1])
        assert fail(1, name=f"user {number}").status_code == 200
    expected = [
        *([5] * 5 + [10] * 5 + [20] * 5 + [40] * 5 + [80] * 5 + [160] * 5),
        *[NAMES_LONGEST] * 10,
    ]
    assert waits == expected
    assert sign_in(address=THERE).status_code == 302


@pytest.mark.slow
@pytest.mark.smoke
def test_an_account_that_signed_in_from_the_address_before_does_not_wait():
    sign_in()
    stuff(NAMES)
    a_user("grace")
    assert sign_in(name="grace").status_code == 429
    assert sign_in().status_code == 302  # in a browser that is new, too
    assert fail(5).status_code == 429  # of its own failures, as ever


def test_a_known_browser_does_not_wait_for_its_address():
    browser = Client()
    sign_in(browser=browser, address=THERE)
    browser.post("/logout/")
    stuff(NAMES)
    assert sign_in().status_code == 429
    assert sign_in(browser=browser).status_code == 302


def test_a_success_forgets_no_failure_of_others():
    stuff(NAMES)
    let_pass(NAMES_LONGEST)
    sign_in()
    assert fail(1, name="one more").status_code == 200
    assert fail(1, name="yet another").status_code == 429


def test_one_account_that_fails_often_delays_no_other():
    for _ in range(NAMES):
        let_pass(3600)
        fail(1)
    a_user("grace")
    assert sign_in(name="grace").status_code == 302


def test_staff_see_attempts_and_lift_a_delay_and_change_none():
    fail(5)
    row, failure = AccessAttempt.objects.get(), AccessFailureLog.objects.first()
    pages = {
        name: reverse(f"admin:axes_{name}_changelist")
        for name in ("accessattempt", "accessfailurelog", "accesslog")
    }
    plain = signed_in(a_user("plain", is_staff=True))
    assert {plain.get(url).status_code for url in pages.values()} == {403}
    watcher = signed_in(
        staff("watcher", *(f"view_{n}" for n in pages), "delete_accessattempt")
    )
    for name, url in pages.items():
        assert watcher.get(url).status_code == 200
        assert watcher.get(f"{url}add/").status_code == 403, name
    shown = watcher.get(f"{pages['accessattempt']}{row.pk}/change/")
    assert HERE in shown.content.decode()
    assert "csrfmiddlewaretoken=" not in shown.content.decode()
    assert failure is not None
    deleted = f"{pages['accessfailurelog']}{failure.pk}/delete/"
    assert (
        signed_in(User.objects.create_superuser("root"))
        .post(deleted, {"post": "yes"})
        .status_code
        == 403
    )
    watcher.post(f"{pages['accessattempt']}{row.pk}/delete/", {"post": "yes"})
    assert sign_in().status_code == 302


def test_wrong_tokens_lock_out_nobody(ada: User):
    for number in range(40):
        headers = {"Authorization": f"Bearer parley_{number}"}
        assert Client(headers=headers).get("/api/models/").status_code == 401
    assert Client(headers=bearer(ada)).get("/api/models/").status_code == 200
    assert not AccessAttempt.objects.exists()
