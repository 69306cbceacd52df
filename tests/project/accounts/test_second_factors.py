"""Codes of an app, recovery codes, and the staff who must have one."""

from __future__ import annotations

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import (
    format_hotp_value,
    hotp_value,
    yield_hotp_counters_from_time,
)
from allauth.socialaccount.models import SocialAccount
from cryptography.fernet import Fernet
from django.conf import settings as project_settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from conversations.access.policy import terms
from conversations.access.session_user import user_from_session
from conversations.engine.maintenance.retention import clean_up
from conversations.models import AccessToken, CacheEntry, TermsVersion
from llm.db.encrypted_field import decrypt, encrypt
from project.accounts.management.commands import rotate_keys
from tests.conversations.scene import PASSWORD, a_user, signed_in, staff

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def no_limits() -> None:
    cache.clear()  # which has the limits of attempts and the codes that were used


@pytest.fixture
def ada() -> User:
    return a_user("ada", is_staff=True, is_superuser=True)


def code_of(secret: str) -> str:
    counter = next(iter(yield_hotp_counters_from_time()))
    return format_hotp_value(hotp_value(secret, counter))


def sign_in(client: Client, where: str = "/login/", **more: str) -> Any:
    return client.post(where, {"username": "ada", "password": PASSWORD, **more})


def enrol(client: Client) -> str:
    page = client.get("/account/second-factor/totp/activate/").content.decode()
    secret = re.findall(r'id="authenticator_secret"[^>]*value="([A-Z2-7]+)"', page)[0]
    form = {"code": code_of(secret)}
    done = client.post("/account/second-factor/totp/activate/", form)
    assert done["Location"] == "/account/second-factor/recovery-codes/"
    return secret


def test_a_sign_in_with_a_second_factor_is_complete_only_after_its_code(ada: User):
    client = Client()
    sign_in(client)
    secret = enrol(client)
    cache.clear()
    for entry in ("/login/", "/admin/login/"):
        browser = Client()
        asked = sign_in(browser, entry, next="/tokens/")
        assert asked["Location"] == "/account/second-factor/authenticate/"
        assert browser.get("/tokens/")["Location"].startswith("/login/")
        wrong = browser.post(asked["Location"], {"code": "000000"})
        assert "Incorrect code" in wrong.content.decode()
        done = browser.post(asked["Location"], {"code": code_of(secret)})
        assert done["Location"] == "/tokens/"
        assert browser.get("/tokens/").status_code == 200
        cache.clear()


def test_attempts_at_codes_are_counted_for_all_processes_and_after_a_restart(ada: User):
    client = Client()
    sign_in(client)
    secret = enrol(client)
    cache.clear()
    browser = Client()
    asked = sign_in(browser)["Location"]
    for _ in range(5):
        assert browser.post(asked, {"code": "000000"}).status_code == 200
    counts = CacheEntry.objects.filter(cache_key__contains="login_failed")
    assert counts.exists()  # in rows: no process has counts of its own
    refused = browser.post(asked, {"code": code_of(secret)})
    assert "Too many failed" in refused.content.decode()
    counts.update(expires=timezone.now() - timedelta(seconds=1))
    erased = sum(clean_up(), Counter())
    assert (erased["counts of attempts"] > 0, counts.exists()) == (True, False)
    assert browser.post(asked, {"code": code_of(secret)}).status_code == 302


def test_a_code_is_accepted_once(ada: User):
    first = Client()
    sign_in(first)
    secret = enrol(first)
    second = Client()
    code = code_of(secret)
    answers = []
    for browser in (first, second):
        browser = Client()
        asked = sign_in(browser)["Location"]
        answers.append(browser.post(asked, {"code": code}).status_code)
    assert answers[-1] == 200  # the page again


def test_codes_cannot_be_guessed_without_end(ada: User):
    client = Client()
    sign_in(client)
    enrol(client)
    browser = Client()
    asked = sign_in(browser)["Location"]
    texts = [
        browser.post(asked, {"code": f"{n:06}"}).content.decode() for n in range(8)
    ]
    assert "Too many failed" in texts[-1]


@pytest.mark.django_db(transaction=True)  # the mark is set when the factor is stored
def test_a_recovery_code_is_used_up(ada: User):
    client = Client()
    sign_in(client)
    enrol(client)
    page = client.get("/account/second-factor/recovery-codes/").content.decode()
    codes = re.findall(r"\b\d{8}\b", page)
    assert len(codes) == 10
    asked = [Client(), Client()]
    for browser, is_accepted in zip(asked, (True, False), strict=True):
        where = sign_in(browser)["Location"]
        answer = browser.post(where, {"code": codes[0]})
        assert (answer.status_code == 302) is is_accepted


def test_staff_reset_recovery_codes_with_the_last_factor(ada: User):
    bob = a_user("bob")
    enrol(signed_in(bob))
    Authenticator.objects.create(
        user=bob, type=Authenticator.Type.WEBAUTHN, data={"name": "Key"}
    )
    admin = signed_in(ada)
    for kind, left in (("webauthn", {"totp", "recovery_codes"}), ("totp", set())):
        row = Authenticator.objects.get(user=bob, type=kind)
        admin.post(f"/admin/mfa/authenticator/{row.pk}/delete/", {"post": "yes"})
        types = Authenticator.objects.filter(user=bob).values_list("type", flat=True)
        assert set(types) == left, kind


CHANGES = [
    "totp/deactivate/",
    "totp/activate/",
    "webauthn/add/",
    "recovery-codes/",
    "recovery-codes/generate/",
    "recovery-codes/download/",
]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", CHANGES)
def test_the_password_alone_changes_no_factor(ada: User, path: str):
    """Neither in a session that is fresh nor after the password was confirmed there."""
    old, other = Client(), Client()
    sign_in(old)
    proof = {"password": PASSWORD, "next": "/account/"}
    assert old.post("/account/confirm/", proof)["Location"] == "/account/"
    sign_in(other)
    secret = enrol(other)
    cache.clear()
    where = f"/account/second-factor/{path}"
    asks = "/account/second-factor/reauthenticate/?next="
    for answer in (old.get(where), old.post(where)):
        assert answer["Location"].startswith(asks)
    again = old.post("/account/confirm/", {**proof, "next": where})
    assert again["Location"].startswith(asks)
    assert "Use your password" not in old.get(again["Location"]).content.decode()
    assert Authenticator.objects.filter(user=ada).count() == 2
    form = {"code": code_of(secret), "next": where}
    assert old.post(asks, form)["Location"] == where
    assert not old.get(where).get("Location", "").startswith(asks)


@pytest.mark.django_db(transaction=True)
def test_a_session_from_before_the_factor_issues_no_token_without_it(ada: User):
    old, other = Client(), Client()
    sign_in(old)
    sign_in(other)
    secret = enrol(other)
    cache.clear()
    token = {"label": "mine", "scopes": ["chat"], "budget_period": "total"}
    asked = old.post("/tokens/", token)
    assert "/account/second-factor/reauthenticate/" in follow(old, asked)
    made = old.post("/api/tokens/", {"label": "x"}, content_type="application/json")
    assert made.status_code == 403
    old.post("/account/confirm/", {"password": PASSWORD, "next": "/tokens/"})
    assert old.post("/tokens/", token).status_code == 302
    assert not AccessToken.objects.exists()
    form = {"code": code_of(secret), "next": "/tokens/"}
    old.post("/account/second-factor/reauthenticate/", form)
    assert old.post("/tokens/", token).status_code == 200
    assert AccessToken.objects.exists()


def follow(client: Client, answer: Any) -> str:
    """Where the redirects lead."""
    while answer.status_code == 302:
        path = answer["Location"]
        answer = client.get(path)
    return str(path)


@pytest.mark.django_db(transaction=True)
def test_who_removes_an_own_factor_is_signed_out_everywhere_else(ada: User):
    client, other = Client(), Client()
    sign_in(client)
    sign_in(other)
    other.get("/")
    enrol(client)
    client.post("/account/second-factor/totp/deactivate/")
    assert not Authenticator.objects.exists()
    assert client.get("/account/").status_code == 200
    assert other.get("/account/")["Location"].startswith("/login/")


@pytest.mark.django_db(transaction=True)
def test_a_reset_by_staff_ends_the_sessions(ada: User):
    client, admin = signed_in(a_user("bob")), signed_in(ada)
    enrol(client)
    row = Authenticator.objects.get(type="totp")
    admin.post(f"/admin/mfa/authenticator/{row.pk}/delete/", {"post": "yes"})
    assert not Authenticator.objects.exists()  # nor recovery codes
    assert client.get("/account/")["Location"].startswith("/login/")
    assert admin.get("/admin/").status_code == 200


def test_secrets_are_encrypted_and_follow_the_key_ring(ada: User, settings: Any):
    client = Client()
    sign_in(client)
    secret = enrol(client)
    row = Authenticator.objects.get(type="totp")
    assert secret not in str(row.data)
    old = list(settings.ENCRYPTION_KEYS)
    settings.ENCRYPTION_KEYS = [Fernet.generate_key().decode(), *old]
    call_command("rotate_keys", verbosity=0)
    settings.ENCRYPTION_KEYS = settings.ENCRYPTION_KEYS[:1]
    row.refresh_from_db()
    assert decrypt(row.data["secret"]) == secret
    assert Client().get("/login/").status_code == 200
    settings.ENCRYPTION_KEYS = old


def test_a_factor_that_changes_during_the_rotation_keeps_the_older_key_needed(
    ada: User, monkeypatch: pytest.MonkeyPatch
):
    client = Client()
    sign_in(client)
    enrol(client)

    def encrypt_late(text: str) -> str:
        Authenticator.objects.filter(type="totp").update(data={"secret": "of another"})
        return encrypt(text)

    monkeypatch.setattr(rotate_keys, "encrypt", encrypt_late)
    with pytest.raises(CommandError, match="Keep the older keys"):
        call_command("rotate_keys", verbosity=0)


def test_the_admin_shows_no_secret(ada: User):
    client = Client()
    sign_in(client)
    enrol(client)
    row = Authenticator.objects.get(type="totp")
    page = client.get(f"/admin/mfa/authenticator/{row.pk}/change/").content.decode()
    assert "ada" in page
    assert row.data["secret"] not in page


# Staff


@pytest.mark.django_db(transaction=True)  # the mark is set when the factor is stored
def test_staff_without_a_second_factor_are_led_to_get_one(ada: User, settings: Any):
    settings.STAFF_SECOND_FACTOR = True
    client = Client()
    sign_in(client)
    led = client.get("/admin/", follow=True)
    assert led.redirect_chain[-1][0] == "/account/second-factor/"
    assert "Set up a second factor first" in led.content.decode()
    posted = client.post("/admin/auth/group/add/", {"name": "sneaked in"})
    assert posted["Location"] == "/account/second-factor/"
    enrol(client)
    assert client.get("/admin/").status_code == 200


def test_a_session_from_before_the_enrolment_proves_the_factor(
    ada: User, settings: Any
):
    old, other = Client(), Client()
    sign_in(old)
    sign_in(other)
    secret = enrol(other)
    settings.STAFF_SECOND_FACTOR = True
    cache.clear()
    led = old.get("/admin/auth/user/")
    where = "/account/second-factor/reauthenticate/?next=%2Fadmin%2Fauth%2Fuser%2F"
    assert led["Location"] == where
    form = {"code": code_of(secret), "next": "/admin/auth/user/"}
    assert old.post(where, form)["Location"] == "/admin/auth/user/"
    assert old.get("/admin/auth/user/").status_code == 200


def test_people_who_are_no_staff_need_none(settings: Any):
    settings.STAFF_SECOND_FACTOR = True
    a_user("ada")
    client = Client()
    sign_in(client)
    assert client.get("/").status_code == 200


# Everybody


@pytest.mark.django_db(transaction=True)
def test_where_everybody_needs_one_nothing_opens_without_it(settings: Any):
    settings.SECOND_FACTOR_FOR_ALL = True
    ada = a_user("ada")
    client = Client()
    sign_in(client)
    pages = ("/", "/tokens/", "/account/", "/account/delete/", "/settings/")
    for path in (*pages, "/admin/mfa/authenticator/"):
        assert client.get(path)["Location"] == "/account/second-factor/", path
    refused = client.get("/api/conversations/")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "second_factor_required"
    key = client.cookies[project_settings.SESSION_COOKIE_NAME].value
    assert not user_from_session(key).is_authenticated  # of a WebSocket
    secret = enrol(client)
    assert client.get("/").status_code == 200
    assert user_from_session(client.session.session_key) == ada
    # A session without the mark, as from before, proves the factor.
    old = Client()
    old.force_login(ada)
    where = old.get("/library/")["Location"]
    assert where == "/account/second-factor/reauthenticate/?next=%2Flibrary%2F"
    cache.clear()
    form = {"code": code_of(secret), "next": "/library/"}
    assert old.post(where, form)["Location"] == "/library/"
    assert old.get("/library/").status_code == 200
    # The next person in this browser has none.
    client.force_login(a_user("bob"))
    assert client.get("/")["Location"] == "/account/second-factor/"


@pytest.mark.django_db(transaction=True)
def test_the_terms_come_after_the_second_factor(settings: Any):
    settings.SECOND_FACTOR_FOR_ALL = True
    terms.forget()
    a_user("ada")
    TermsVersion.objects.create(text="Be kind.").publish()
    client = Client()
    sign_in(client)
    led = client.get("/library/", follow=True)
    assert led.redirect_chain == [("/account/second-factor/", 302)]
    assert led.status_code == 200
    enrol(client)
    led = client.get("/library/", follow=True)
    assert led.redirect_chain == [("/terms/?next=%2Flibrary%2F", 302)]
    client.post("/terms/", {"version": 1})
    assert client.get("/library/").status_code == 200
    TermsVersion.objects.update(number=None)
    terms.forget()


@pytest.mark.parametrize("model", [Authenticator, SocialAccount])
def test_staff_reset_no_sign_in_of_accounts_with_more_rights(model: Any):
    people = {
        "chief": User.objects.create_superuser("chief"),
        "user": User.objects.create_user("user"),
        "clerk": staff("clerk", f"delete_{model._meta.model_name}", "view_user"),
    }
    extra = {"type": "totp", "data": {}} if model is Authenticator else {"uid": "1"}
    rows = {
        name: model.objects.create(
            user=user, **extra, **({"provider": name} if "uid" in extra else {})
        )
        for name, user in people.items()
    }
    client = signed_in(people["clerk"])
    for name, row in rows.items():
        page = f"/admin/{model._meta.label_lower.replace('.', '/')}/{row.pk}/delete/"
        answer = client.post(page, {"post": "yes"})
        assert (name, answer.status_code) == (name, 302 if name == "user" else 403)
        assert model.objects.filter(pk=row.pk).exists() == (name != "user")


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("/login/", "Use a passkey"),
        ("/account/second-factor/webauthn/add/", "Add"),
    ],
)
def test_no_button_for_keys_is_shown_where_no_script_runs(
    ada: User, where: str, name: str
):
    client = Client()
    if where != "/login/":
        sign_in(client)
    page = client.get(where).content.decode()
    button = re.findall(r"<button[^>]*>(?:(?!</button>).)*</button>", page, re.DOTALL)
    (key_button,) = [each for each in button if name in each]
    assert "only-scripted" in key_button
    assert "Passkeys and security keys need JavaScript." in page
