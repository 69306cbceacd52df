"""The page on which people make tokens of their own, and the command that does it."""

from __future__ import annotations

import io
import re
from datetime import timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.access import budget
from conversations.models import AccessToken
from conversations.models.access_token import Scope
from conversations.models.ledger import entry_id
from tests.conversations.scene import a_model, a_user, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

PAGE = reverse("tokens")
FORM = {"label": "Backup script", "scopes": ["chat"], "budget_period": "month"}


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def web(ada: User) -> Client:
    return signed_in(ada)


def made(web: Client, **fields: Any) -> tuple[AccessToken, str]:
    """The row and the token, as the page shows it."""
    answer = web.post(PAGE, {**FORM, **fields})
    assert answer.status_code == 200, answer.context["form"].errors
    found = re.search(r"<code>(parley_[\w-]+)</code>", answer.content.decode())
    assert found
    row = AccessToken.objects.find(found[1])
    assert row
    return row, found[1]


def errors(web: Client, **fields: Any) -> dict[str, Any]:
    answer = web.post(PAGE, {**FORM, **fields})
    assert answer.status_code == 400
    assert not AccessToken.objects.exists()
    return dict(answer.context["form"].errors)


def test_a_new_token_is_shown_once_and_opens_the_endpoints(web: Client, ada: User):
    row, token = made(web)
    assert (row.user, row.label, row.scopes) == (ada, "Backup script", ["chat"])
    program = Client(headers={"Authorization": f"Bearer {token}"})
    assert program.get("/api/conversations/").status_code == 200
    again = web.get(PAGE)
    assert token not in again.content.decode()
    assert row.prefix in again.content.decode()
    assert "no-store" in again["Cache-Control"]


def test_a_token_that_may_declare_any_tool_is_marked(web: Client):
    row, _ = made(web)
    words = "Declared tools"
    assert words not in web.get(PAGE).content.decode()
    AccessToken.objects.filter(pk=row.pk).update(declares_any_tool=True)
    assert words in web.get(PAGE).content.decode()


def test_all_limits_of_a_token_are_stored_and_shown(web: Client):
    model = a_model("m-7")
    day = timezone.localdate() + timedelta(days=30)
    row, _ = made(
        web,
        allowed_models=[model.pk],
        networks="192.0.2.0/24\n2001:db8::1",
        requests_per_minute="60",
        tokens_per_minute="9000",
        budget="5",
        expires_on=day.isoformat(),
    )
    assert row.model_ids == {model.pk}
    assert row.networks == ["192.0.2.0/24", "2001:db8::1"]
    assert (row.requests_per_minute, row.tokens_per_minute) == (60, 9000)
    assert (row.budget, row.budget_period) == (Decimal(5), "month")
    assert row.expires_at
    assert timezone.localdate(row.expires_at) == day
    entry = entry_id()
    budget.reserve(entry, row.pk, 500_000_000)
    budget.settle(entry, 420_000_000)
    text = " ".join(web.get(PAGE).content.decode().split())
    for expected_text in ("Test/m-7", "60 requests a minute, 9000 tokens a minute"):
        assert expected_text in text
    assert "$0.4200 of $5.00 a month" in text


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("label", ""),
        ("scopes", []),
        ("scopes", ["root"]),
        ("scopes", ["admin-read"]),  # staff's
        ("networks", "10.0.0.0/99"),
        ("requests_per_minute", "0"),
        ("tokens_per_minute", "-1"),
        ("budget", "-1"),
        ("budget", "NaN"),
        ("budget_period", "decade"),
        ("expires_on", "2020-01-01"),
        ("allowed_models", ["999"]),
    ],
)
def test_an_invalid_limit_is_refused_at_its_field(web: Client, field: str, value: Any):
    assert list(errors(web, **{field: value})) == [field]


def test_a_model_the_user_may_not_use_is_not_offered(web: Client):
    hidden = a_model("hidden")
    hidden.groups.add(Group.objects.create(name="others"))
    assert "Test/hidden" not in web.get(PAGE).content.decode()
    assert list(errors(web, allowed_models=[hidden.pk])) == ["allowed_models"]


def test_staff_may_give_the_scope_for_statistics():
    row, _ = made(signed_in(a_user("root", is_staff=True)), scopes=["admin-read"])
    assert row.scopes == [Scope.ADMIN_READ]


def test_people_see_and_revoke_only_their_own(web: Client, ada: User):
    hers, _ = AccessToken.issue(a_user("eve"), "Eve's <own>")
    mine, _ = AccessToken.issue(ada, "<b>Mine</b>")
    text = web.get(PAGE).content.decode()
    assert "Eve" not in text
    assert "&lt;b&gt;Mine&lt;/b&gt;" in text
    assert web.post(reverse("revoke-token", args=[hers.pk])).status_code == 404
    assert web.get(reverse("revoke-token", args=[mine.pk])).status_code == 405
    answer = web.post(reverse("revoke-token", args=[mine.pk]), follow=True)
    assert "You have no access tokens." in answer.content.decode()
    mine.refresh_from_db()
    hers.refresh_from_db()
    assert mine.revoked_at
    assert not hers.revoked_at


def test_the_token_page_requires_a_session(client: Client):
    for answer in (client.get(PAGE), client.post(PAGE, FORM)):
        assert answer.status_code == 302
    assert not AccessToken.objects.exists()


def test_the_settings_lead_to_it(web: Client):
    assert 'href="/settings/"' in web.get("/").content.decode()
    assert f'href="{PAGE}"' in web.get("/settings/").content.decode()


# Elsewhere


@pytest.mark.django_db(transaction=True)
def test_other_processes_are_notified_of_a_revocation_but_not_of_each_use(
    ada: User, monkeypatch: pytest.MonkeyPatch
):
    import_module("conversations.gateway.token_access")  # it listens
    revoked: list[str] = []
    monkeypatch.setattr(engine, "publish_notification", revoked.append)
    row, _ = AccessToken.issue(ada, "x")
    revoked.clear()
    row.note_use()
    assert revoked == []
    row.revoke()
    assert revoked == ["tokens"]


# The command


def create(*arguments: str) -> AccessToken:
    out = io.StringIO()
    call_command("create_token", "ada", *arguments, stdout=out, stderr=io.StringIO())
    row = AccessToken.objects.find(out.getvalue().splitlines()[-1])
    assert row
    return row


@pytest.mark.usefixtures("ada")
def test_the_command_takes_all_limits():
    model = a_model("m-7")
    row = create(
        *("--scope", "tools", "--scope", "gateway", "--model", "m-7", "--days", "3"),
        *("--network", "10.0.0.0/8", "--requests-per-minute", "5"),
        *("--tokens-per-minute", "50", "--budget", "0.50", "--period", "day"),
    )
    assert row.scopes == ["tools", "gateway"]
    assert row.model_ids == {model.pk}
    assert row.networks == ["10.0.0.0/8"]
    assert (row.requests_per_minute, row.tokens_per_minute) == (5, 50)
    assert (row.budget, row.budget_period) == (Decimal("0.50"), "day")
    assert row.expires_at
    assert row.expires_at < timezone.now() + timedelta(days=3)
    assert create().scopes == ["chat", "gateway"]


@pytest.mark.usefixtures("ada")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nonesuch"], "There is no model 'nonesuch'"),
        (["--network", "here"], "'here' does not appear to be an IPv4"),
        (["--budget", "much"], "'much' is not an amount"),
        (["--budget", "-1"], "budget: "),
        (["--requests-per-minute", "0"], "requests_per_minute: "),
    ],
)
def test_the_command_reports_invalid_arguments(arguments: list[str], message: str):
    with pytest.raises(CommandError, match=message):
        create(*arguments)
    assert not AccessToken.objects.exists()


def test_an_owner_changes_a_token_and_its_log(web: Client, ada: User):
    token, _ = made(web, label="app", stores_responses="on")
    page = f"/tokens/{token.pk}/"
    fields = {"label": "my app", "allowed_origins": "https://app.example.org"}
    assert web.post(page, fields).status_code == 302
    token.refresh_from_db()
    assert (token.label, token.stores_responses) == ("my app", False)
    assert token.allowed_origins == "https://app.example.org"
    assert web.post(page, {**fields, "allowed_origins": "app"}).status_code == 400
    web.post(f"{page}log/", {"on": "1"})
    token.refresh_from_db()
    assert token.logs_requests
    row = token.logged_requests.create(
        method="POST", path="/v1/responses", seconds=1, request_id="req_1"
    )
    assert "req_1" in web.get(page).content.decode()
    assert web.get(f"{page}requests/{row.pk}/").status_code == 200
    web.post(f"{page}log/", {})
    token.refresh_from_db()
    assert not token.logs_requests


def test_another_user_sees_neither_settings_nor_log(web: Client, ada: User):
    other = User.objects.create_user("eve")
    token, _ = AccessToken.issue(other, "hers")
    row = token.logged_requests.create(
        method="POST", path="/v1/responses", seconds=1, request_id="req_1"
    )
    for path in ("", "log/", f"requests/{row.pk}/"):
        address = f"/tokens/{token.pk}/{path}"
        assert web.get(address).status_code in (404, 405)
        assert web.post(address, {"on": "1"}).status_code in (404, 405)
    token.refresh_from_db()
    assert not token.logs_requests
