"""Pages and REST ask for the password or second factor before a dangerous act."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.core.cache import cache
from django.test import Client

from conversations.access.session_marks import PROVEN_AT
from conversations.models import AccessToken, SignedInSession
from tests.conversations.scene import PASSWORD, a_model, a_user, bearer, signed_in

pytestmark = pytest.mark.django_db

TOKEN = {"label": "mine", "scopes": ["chat"], "budget_period": "total"}


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def stale(ada: User) -> Client:
    """Signed in an hour ago."""
    client = signed_in(ada)
    session = client.session
    session[PROVEN_AT] -= 3600
    session.save()
    return client


def confirm(client: Client, password: str = PASSWORD) -> Any:
    form = {"password": password, "next": "/tokens/"}
    return client.post("/account/confirm/", form)


@pytest.mark.parametrize(
    "path",
    [
        "/account/export/begins/",
        "/account/second-factor/totp/activate/",
        "/account/second-factor/webauthn/add/",
    ],
)
def test_a_stale_session_is_asked_first(stale: Client, path: str):
    asked = stale.get(path)
    assert asked.status_code == 302, path
    assert asked["Location"].startswith("/account/confirm/?next="), path


def test_the_address_of_the_mail_is_not_changed_unasked(stale: Client, ada: User):
    form = {"email": "evil@example.org", "action_add": ""}
    asked = stale.post("/account/email/", form)
    assert asked["Location"].startswith("/account/confirm/?next=")
    assert mail.outbox == []


def test_a_new_address_counts_after_its_confirmation(ada: User):
    client = signed_in(ada)
    client.post("/account/email/", {"email": "new@example.org", "action_add": ""})
    [sent] = mail.outbox
    assert sent.to == ["new@example.org"]
    path = re.findall(r"http://testserver(/account/email/confirm/\S+)", sent.body)[0]
    ada.refresh_from_db()
    assert ada.email == ""
    assert client.post(path).status_code == 302
    ada.refresh_from_db()
    assert ada.email == "new@example.org"


def test_an_export_begins_on_a_page_after_the_proof(stale: Client):
    led = stale.get("/account/export/?format=markdown", follow=True)
    [begins, asks] = [where for where, _ in led.redirect_chain]
    assert begins == "/account/export/begins/?format=markdown"
    assert asks.startswith("/account/confirm/?next=")
    proof = {"password": PASSWORD, "next": begins}
    page = stale.post("/account/confirm/", proof, follow=True)
    assert page["Content-Type"].startswith("text/html")
    export = "/account/export/?format=markdown"
    assert page["Refresh"] == f"0; url={export}"
    assert f'href="{export}"' in page.content.decode()
    assert stale.get(export)["Content-Type"] == "application/zip"


def test_a_fresh_session_is_not_asked(ada: User):
    client = signed_in(ada)
    assert client.get("/account/export/").status_code == 200
    assert client.get("/account/email/").status_code == 200


def test_a_token_is_issued_after_the_proof_without_typing_it_again(stale: Client):
    asked = stale.post("/tokens/", TOKEN)
    assert asked["Location"] == "/account/confirm/?next=%2Ftokens%2F"
    assert not AccessToken.objects.exists()
    assert confirm(stale, "wrong").status_code == 200
    assert not AccessToken.objects.exists()
    made = confirm(stale)
    assert made.status_code == 200
    assert AccessToken.objects.get().label == "mine"


def test_guesses_of_the_password_are_delayed_as_at_the_sign_in(stale: Client):
    answers = [confirm(stale, "wrong").status_code for _ in range(5)]
    assert answers == [200] * 4 + [429]


@pytest.mark.parametrize(
    ("method", "path"),
    [("post", "/api/tokens/"), ("get", "/api/conversations/export/")],
)
def test_rest_names_what_is_missing(stale: Client, method: str, path: str):
    request = getattr(stale, method)
    json = {"data": {"label": "x"}, "content_type": "application/json"}
    json = json if method == "post" else {}
    refused = request(path, **json)
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "reauthentication_required"


def test_a_program_with_a_token_is_not_asked(ada: User):
    program = Client(headers=bearer(ada))
    assert program.get("/api/conversations/export/").status_code == 200


def test_a_proof_gives_the_session_a_new_key(stale: Client):
    stale.get("/account/")  # it has a row then
    old = stale.session.session_key
    rows = SignedInSession.objects.count()
    assert confirm(stale).status_code in (200, 302)
    assert stale.session.session_key != old
    assert not type(stale.session)(old).exists(old)
    assert SignedInSession.objects.count() == rows
    assert SignedInSession.objects.get().session_key == stale.session.session_key


def test_sessions_are_ended_after_a_proof_only(stale: Client, ada: User):
    other = signed_in(ada)
    asked = stale.post("/account/sessions/end-others/")
    assert asked["Location"].startswith("/account/confirm/?next=")
    assert other.get("/account/").status_code == 200
    refused = stale.delete("/api/sessions/")
    assert refused.json()["error"]["code"] == "reauthentication_required"
    assert other.get("/account/").status_code == 200


def test_a_token_for_a_program_is_made_after_the_proof_only(stale: Client):
    a_model("m-1")
    form = {"label": "x", "model": "m-1"}
    asked = stale.post("/connect/", form)
    assert asked["Location"].startswith("/account/confirm/?next=")
    assert not AccessToken.objects.exists()


def as_superuser(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)


@pytest.mark.parametrize(
    "path",
    ["conversations/accesstoken/add/", "auth/user/{ada}/change/", "auth/group/add/"],
)
def test_the_admin_asks_before_it_gives_rights(stale: Client, ada: User, path: str):
    cache.clear()  # which counts the proofs of a minute
    as_superuser(ada)
    where = f"/admin/{path.format(ada=ada.pk)}"
    assert stale.get(where).status_code == 200
    asked = stale.post(where, {"name": "Law"})
    assert asked.status_code == 302
    assert asked["Location"].startswith("/account/confirm/?next=")
    assert not Group.objects.filter(name="Law").exists()
    stale.post("/account/confirm/", {"password": PASSWORD, "next": where})
    assert Group.objects.filter(name="Law").exists() == ("group" in path)


@pytest.mark.parametrize(
    "path",
    ["auth/user/add/", "auth/user/{ada}/password/", "accounts/identityprovider/add/"],
)
def test_a_form_with_a_secret_is_shown_after_the_proof(
    stale: Client, ada: User, path: str
):
    cache.clear()
    as_superuser(ada)
    where = f"/admin/{path.format(ada=ada.pk)}"
    for asked in (stale.get(where), stale.post(where, {"password1": "of-another"})):
        assert asked.status_code == 302
        assert asked["Location"].startswith("/account/confirm/?next=")
    assert "of-another" not in str(dict(stale.session))
    done = stale.post("/account/confirm/", {"password": PASSWORD, "next": where})
    assert done["Location"] == where
    assert stale.get(where).status_code == 200
