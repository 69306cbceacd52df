"""Who has not accepted the newest terms of use does nothing but read and accept them,
or leave."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as project_settings
from django.test import Client
from django.urls import reverse

from conversations.access.policy import terms
from conversations.access.session_user import user_from_session
from conversations.audit.models import AuditEvent
from conversations.models import AccessToken, TermsAcceptance, TermsVersion
from conversations.transfer.account import write_account
from tests.conversations.scene import a_user, bearer, program, signed_in, staff

pytestmark = pytest.mark.django_db(transaction=True)

CLOSED = ("/", "/chats/", "/library/", "/account/", "/tokens/", "/settings/", "/keys/")
OPEN = ("/terms/", "/account/delete/", "/offline/")


@pytest.fixture(autouse=True)
def nothing_remembered():
    terms.forget()
    yield
    terms.forget()


def publish(text: str = "Be *kind*.", **fields: Any) -> TermsVersion:
    row = TermsVersion.objects.create(text=text, **fields)
    row.publish()
    return row


def accept(client: Client, version: int, **fields: Any) -> Any:
    return client.post("/terms/", {"version": version, **fields})


def socket_user(client: Client) -> Any:
    return user_from_session(client.cookies[project_settings.SESSION_COOKIE_NAME].value)


def test_without_published_terms_nobody_is_asked():
    TermsVersion.objects.create(text="A draft")
    client = signed_in(a_user())
    assert client.get("/").status_code == 200
    assert client.get("/terms/").status_code == 404
    assert socket_user(client).is_authenticated


def test_pages_rest_and_sockets_open_once_the_terms_are_accepted():
    ada = a_user()
    client = signed_in(ada)
    client.get("/")
    publish()
    for path in CLOSED:
        answer = client.get(path)
        assert answer.status_code == 302, path
        assert answer["Location"] == f"/terms/?next={path.replace('/', '%2F')}"
    for path in OPEN:
        assert client.get(path).status_code == 200, path
    refused = client.get("/api/conversations/")
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "terms_not_accepted"
    assert "/terms/" in refused.json()["error"]["message"]
    for act in ("/api/tokens/", "/tokens/"):
        made = client.post(act, {"label": "x"}, content_type="application/json")
        assert made.status_code in (302, 403)
    assert not AccessToken.objects.exists()
    assert not socket_user(client).is_authenticated

    page = client.get("/terms/?next=/library/").content.decode()
    assert "Be <em>kind</em>." in page
    assert accept(client, 1, next="/library/")["Location"] == "/library/"
    assert all(client.get(path).status_code == 200 for path in CLOSED)
    assert client.get("/api/conversations/").status_code == 200
    assert socket_user(client) == ada
    event = AuditEvent.objects.get(action="terms.accept")
    assert (event.actor, event.subject) == (ada.pk, ada.pk)
    own = json.loads(write_account(ada))["accepted_terms"]
    assert [each["version"] for each in own] == [1]
    assert own[0]["accepted_at"]


def test_a_newer_version_asks_again_and_only_the_newest_is_accepted():
    client = signed_in(a_user())
    publish()
    accept(client, 1)
    publish("Be kinder.")
    assert client.get("/").status_code == 302
    for version in (1, 0, "", "x", 3):
        refused = accept(client, version)
        assert refused.status_code == 409
        assert "Be kinder." in refused.content.decode()
    by_rest = client.post("/api/terms/", {"version": 1}, "application/json")
    assert by_rest.status_code == 409
    assert client.get("/").status_code == 302
    by_rest = client.post("/api/terms/", {"version": 2}, "application/json")
    assert by_rest.json()["accepted_at"]
    assert client.get("/").status_code == 200


def test_what_one_browser_accepted_counts_in_the_others():
    ada = a_user()
    first, second = signed_in(ada), signed_in(ada)
    publish()
    accept(first, 1)
    assert socket_user(second) == ada
    assert second.get("/").status_code == 200
    assert TermsAcceptance.objects.count() == 1


@pytest.mark.parametrize("signs_out", [True, False])
def test_the_next_person_in_the_same_browser_is_asked(signs_out: bool):
    client = signed_in(a_user())
    publish()
    accept(client, 1)
    if signs_out:
        client.post(reverse("logout"))
    client.force_login(a_user("bob"))
    assert client.get("/").status_code == 302
    assert not socket_user(client).is_authenticated


@pytest.mark.parametrize(
    "wanted",
    [
        *("https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil"),
        *("javascript:alert(1)", "http:///evil.example", "", "library/"),
    ],
)
def test_acceptance_leads_to_pages_of_this_server_only(wanted: str):
    client = signed_in(a_user())
    publish()
    assert accept(client, 1, next=wanted)["Location"] == "/"


def test_a_post_that_was_refused_is_not_repeated():
    client = signed_in(a_user())
    publish()
    assert client.post("/tokens/", {"label": "x"})["Location"] == "/terms/"


def test_the_admin_stays_open_but_for_tokens():
    """Else nobody could mend the terms."""
    root = signed_in(a_user("root", is_staff=True, is_superuser=True))
    publish()
    assert root.get("/admin/").status_code == 200
    path = reverse("admin:conversations_accesstoken_add")
    assert root.get(path)["Location"].startswith("/terms/")


def test_hot_pages_ask_the_database_nothing_more(django_assert_max_num_queries):
    client = signed_in(a_user())
    publish()
    accept(client, 1)
    client.get("/api/models/")
    with django_assert_max_num_queries(30) as seen:
        client.get("/api/models/")
    assert not [q for q in seen.captured_queries if "terms" in (q["sql"] or "")]


# Access tokens


@pytest.mark.parametrize("binds", [True, False])
def test_rest_refuses_tokens_where_staff_say_so(binds: bool):
    ada = a_user()
    client = program(ada)
    row = publish(applies_to_tokens=binds)
    refused = client.get("/api/conversations/")
    assert refused.status_code == (403 if binds else 200)
    if binds:
        error = refused.json()["error"]
        assert error["code"] == "terms_not_accepted"
        assert "/terms/" in error["message"]
    row.accept(ada)
    assert client.get("/api/conversations/").status_code == 200


@pytest.mark.skipif(project_settings.IS_SCALED, reason="the same in both deliveries")
async def test_the_gateway_refuses_in_the_form_of_each_api(settings: Any):
    from httpx import ASGITransport, AsyncClient

    from project.server.application import application

    settings.PUBLIC_URL = "https://chat.example.org/"
    ada = await sync_to_async(a_user)()
    headers = await sync_to_async(bearer)(ada)
    row = await sync_to_async(publish)(applies_to_tokens=True)
    said = [{"role": "user", "content": "Hi"}]
    async with AsyncClient(
        transport=ASGITransport(application), base_url="http://localhost"
    ) as http:
        for path, body in (
            ("/v1/chat/completions", {"messages": said}),
            ("/v1/responses", {"input": "Hi"}),
            ("/v1/messages", {"messages": said, "max_tokens": 5}),
        ):
            body = {"model": "demo", **body}
            refused = await http.post(path, headers=headers, json=body)
            assert refused.status_code == 403, (path, refused.text)
            assert "https://chat.example.org/terms/" in refused.text, path
            is_anthropic = path == "/v1/messages"
            assert ("type" in refused.json()) is is_anthropic
        assert (await http.get("/v1/models", headers=headers)).status_code == 403
        await sync_to_async(row.accept)(ada)
        assert (await http.get("/v1/models", headers=headers)).status_code == 200


# In the admin

PATH = "admin:conversations_termsversion"


def test_a_published_text_stays():
    root = signed_in(a_user("root", is_staff=True, is_superuser=True))
    root.post(reverse(f"{PATH}_add"), {"text": "Be kind."})
    draft = TermsVersion.objects.get()
    data = {"action": "publish", "_selected_action": [draft.pk]}
    root.post(reverse(f"{PATH}_changelist"), data)  # asks first
    assert TermsVersion.objects.get().number is None
    root.post(reverse(f"{PATH}_changelist"), {**data, "confirmed": "1"})
    page = reverse(f"{PATH}_change", args=[draft.pk])
    root.post(page, {"text": "Be mean.", "applies_to_tokens": "on"})
    root.post(reverse(f"{PATH}_delete", args=[draft.pk]), {"post": "yes"})
    draft.refresh_from_db()
    assert (draft.number, draft.text) == (1, "Be kind.")
    assert draft.applies_to_tokens
    actions = AuditEvent.objects.filter(action__startswith="config.")
    assert [each.action for each in actions.order_by("pk")] == [
        *("config.add", "config.change", "config.change")
    ]


def test_staff_who_may_write_terms_may_not_publish_them():
    rights = ("add_termsversion", "change_termsversion", "view_termsversion")
    client = signed_in(staff("olga", *rights))
    draft = TermsVersion.objects.create(text="Be kind.")
    data = {"action": "publish", "_selected_action": [draft.pk], "confirmed": "1"}
    client.post(reverse(f"{PATH}_changelist"), data)
    assert TermsVersion.objects.get().number is None
