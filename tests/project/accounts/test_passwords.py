"""Passwords that somebody else has seen, and passwords that were forgotten."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings as project_settings
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from conversations.access.session_user import user_from_session
from conversations.models import SignedInSession
from project.accounts.models import RequiredPasswordChange
from project.startup.first_start import first_start
from tests.conversations.scene import PASSWORD, a_user, signed_in

pytestmark = pytest.mark.django_db

NEW = "an-own-one-of-ada"


@pytest.fixture
def ada() -> User:
    return a_user("ada", email="ada@example.org")


def sign_in(name: str = "ada", password: str = PASSWORD) -> Client:
    client = Client()
    form = {"username": name, "password": password}
    assert client.post("/login/", form).status_code == 302
    return client


def session_user(client: Client) -> Any:
    key = client.cookies[project_settings.SESSION_COOKIE_NAME].value
    return user_from_session(key)


def change(client: Client, old: str, new: str) -> Any:
    fields = {"old_password": old, "new_password1": new, "new_password2": new}
    return client.post("/account/own-password/", fields)


def test_the_printed_password_opens_nothing_but_the_page_that_replaces_it(
    settings: Any,
):
    settings.ADMIN_PASSWORD = ""
    login = first_start().login
    printed = re.findall(r"[a-z2-9]{4}(?:-[a-z2-9]{4}){3}", login)[0]
    client = sign_in("admin", printed)
    for path in ("/", "/admin/", "/account/", "/account/second-factor/", "/tokens/"):
        assert client.get(path)["Location"] == "/account/own-password/", path
    refused = client.get("/api/conversations/")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "password_change_required"
    assert not session_user(client).is_authenticated  # of a WebSocket
    assert client.get("/account/own-password/").status_code == 200
    assert change(client, printed, printed).status_code == 400
    assert change(client, printed, NEW)["Location"] == "/"
    assert client.get("/admin/").status_code == 200
    assert session_user(client).username == "admin"
    assert sign_in("admin", NEW).get("/").status_code == 200


def test_a_password_of_the_environment_needs_no_change(settings: Any):
    settings.ADMIN_PASSWORD = NEW
    first_start()
    assert sign_in("admin", NEW).get("/admin/").status_code == 200


def test_who_signs_out_instead_is_asked_again(ada: User):
    RequiredPasswordChange.objects.create(user=ada)
    assert sign_in().post("/logout/").status_code == 302
    assert sign_in().get("/")["Location"] == "/account/own-password/"


def test_a_password_that_staff_set_must_be_changed(ada: User):
    root = User.objects.create_superuser("root", password=PASSWORD)
    admin = signed_in(root)
    fields = {"password1": NEW, "password2": NEW, "usable_password": "true"}
    assert admin.post(f"/admin/auth/user/{ada.pk}/password/", fields).status_code == 302
    assert sign_in("ada", NEW).get("/")["Location"] == "/account/own-password/"
    added = {"username": "grace", **fields}
    assert admin.post("/admin/auth/user/add/", added).status_code == 302
    assert sign_in("grace", NEW).get("/")["Location"] == "/account/own-password/"
    own = f"/admin/auth/user/{root.pk}/password/"
    assert admin.post(own, fields).status_code == 302
    assert sign_in("root", NEW).get("/").status_code == 200


def test_a_new_password_from_anywhere_fulfils_it(ada: User):
    RequiredPasswordChange.objects.create(user=ada)
    ada.set_password(NEW)
    ada.save()
    assert sign_in("ada", NEW).get("/").status_code == 200


# Forgotten


def ask_for_reset(email: str) -> Any:
    return Client().post("/account/password-reset/", {"email": email})


def test_a_reset_by_mail_sets_a_password_and_ends_the_sessions(ada: User):
    before = sign_in()
    before.get("/")
    answer = ask_for_reset("ada@example.org")
    [sent] = mail.outbox
    assert sent.to == ["ada@example.org"]
    path = re.findall(r"http://testserver(/account/password-reset/key/\S+)", sent.body)
    client = Client()
    form = client.get(path[0], follow=True)
    where = form.redirect_chain[-1][0]
    weak = {"password1": "password", "password2": "password"}
    assert "too common" in client.post(where, weak).content.decode()
    done = client.post(where, {"password1": NEW, "password2": NEW})
    assert done["Location"] == "/account/password-reset/done/"
    assert before.get("/account/")["Location"].startswith("/login/")
    assert not SignedInSession.objects.filter(user=ada).exists()
    sign_in("ada", NEW)
    assert "invalid" in Client().get(path[0], follow=True).content.decode()  # used
    assert answer["Location"] == "/account/password-reset/sent/"


def test_nothing_tells_which_addresses_have_an_account(ada: User):
    known, unknown = ask_for_reset("ada@example.org"), ask_for_reset("x@example.org")
    assert (known.status_code, known["Location"]) == (302, unknown["Location"])
    assert len(mail.outbox) == 1


def test_who_signs_in_by_a_provider_gets_no_password_by_mail(ada: User):
    ada.set_unusable_password()
    ada.save()
    assert ask_for_reset("ada@example.org").status_code == 302
    assert mail.outbox == []


def test_a_dead_mail_server_is_no_error_page(ada: User, settings: Any, caplog: Any):
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 9
    assert ask_for_reset("ada@example.org").status_code == 302
    assert "a mail was not sent: ConnectionRefusedError" in caplog.text
    assert "ada@" not in caplog.text
