"""What people do on the pages about their account, memories and search, by REST."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver, reverse

from conversations import urls
from conversations.models import AccessToken, Conversation, Memory
from tests.conversations.scene import (
    a_model,
    a_user,
    program,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

#: What each page's address does, and the address of the API that does the same.
PAGES = {
    "chat": "conversations",
    "conversation-list": "search",
    "conversation": "turns",
    "rename": "conversation",
    "delete": "conversation",
    "choose-tools": "conversation",
    "background": "tool-calls",
    "cancel-call": "tool-call-cancel",
    "turn": "turn",
    "refresh": "turn",
    "stop": "cancel",
    "retry": "turns",
    "continue": "continue",
    "text": "turn",
    "context-gauge": "context",
    "change-item": "item",
    "account": "password",
    "password-changed": "password",
    "end-session": "session",
    "end-other-sessions": "sessions",
    "memories": "memories",
    "change-memory": "memory",
    "delete-memory": "memory",
    "tokens": "tokens",
    "revoke-token": "token",
    "token-settings": "token",
    "request-log": "token",
    "logged-request": "logged-request",
    "questions": "questions",
    "question": "answer",
    "own-keys": "own-keys",
    "store-own-key": "own-key",
    "delete-own-key": "own-key",
    "settings": "settings",
    "settings-personal": "settings",
    "settings-shortcuts": "settings",
    "prompts": "prompts",
    "prompt": "prompt",
    "use-prompt": "prompts",
    "delete-prompt": "prompt",
    "usage": "usage",
    "usage-csv": "usage",
    "limits-left": "limits",
    "chat-options": "conversation",
    "delete-account": "delete-account",
    "edit-message": "turns",
    "change-queued": "turn",
    "queue": "queue",
    "show-branch": "branch",
    "delete-branch": "delete-branch",
    "restore-branch": "restore-branch",
    "restore-conversation": "restore-conversation",
    "fork": "fork",
    "rate": "rating",
    "artifact": "turn",
    "artifact-content": "turn",
    "artifact-download": "turn",
    "library": "bulk",
    "keep": "conversation",
    "organise": "conversation",
    "folders": "folders",
    "folder": "folder",
    "delete-folder": "folder",
    "add-folder-file": "folder-files",
    "delete-folder-file": "folder-file",
    "export-conversation": "export",
    "print-conversation": "export",
    "export-all": "export-all",
    "import": "import",
    "imports": "imports",
    "share": "conversation-shares",
    "shares": "shares",
    "revoke-share": "share",
    "people": "participants",
    "remove-person": "participant",
    "invitations": "invitations",
    "accept-invitation": "accept-invitation",
    "undo-memory": "restore-memory",
    "revoke-approval": "standing-approval",
    "sign-ins": "sign-ins",
    "sign-out-of-server": "sign-in",
    "webhooks": "webhooks",
    "webhook": "webhook",
    "delete-webhook": "webhook",
    "webhook-secret": "webhook-secret",
    "send-again": "send-again",
    "terms": "terms",
    "dismiss-announcement": "dismiss-announcement",
}
#: Steps of a sign-in at a provider, which needs a browser; parts of the app; links.
IN_BROWSERS = {
    *("begin-key-sign-in", "end-key-sign-in"),
    *("question-sign-in", "sign-in-at-server", "signed-in-at-server"),
    *("manifest", "service-worker", "offline", "mermaid-frame", "script-texts"),
    "export-download",  # the page to which the question for the password leads
    "connect",  # snippets to copy, with a token that only a person may make
    *("shared", "shared-file"),  # for people with a link, who need no account
}


@pytest.fixture
def ada() -> User:
    user = a_user("ada")
    user.set_password("ada's old words")
    user.save()
    return user


@pytest.fixture
def api(ada: User) -> Client:
    return signed_in(ada)


def send(api: Client, name: str, body: Any = None, *, method: str = "post", **kwargs):
    url = reverse(f"api:{name}", kwargs=kwargs)
    return api.generic(method.upper(), url, _json(body), "application/json")


def _json(body: Any) -> bytes:
    return b"" if body is None else orjson.dumps(body)


def test_every_page_has_its_like_in_the_api():
    resolver = get_resolver(urls.__name__)
    pages = {name for name in resolver.reverse_dict if isinstance(name, str)}
    apis = get_resolver("conversations.api.urls").reverse_dict
    assert pages - IN_BROWSERS == set(PAGES)
    assert [name for name in PAGES.values() if name not in apis] == []


def test_a_token_is_issued_listed_and_revoked(api: Client, ada: User):
    model = a_model("m-1")
    limits = {"requests_per_minute": 60, "budget": "5.00", "budget_period": "month"}
    body = {"label": "report", "models": [model.public_name], **limits}
    made = send(api, "tokens", body)
    assert made.status_code == 201, made.content
    issued = made.json()
    found = AccessToken.objects.find(issued["token"])
    assert found is not None
    assert (found.user, found.requests_per_minute) == (ada, 60)
    assert list(found.allowed_models.all()) == [model]
    [listed] = send(api, "tokens", method="get").json()["data"]
    assert {**listed, "token": issued["token"]} == issued
    assert issued["token"] not in str(listed)
    bob = signed_in(a_user("bob"))
    pk = issued["id"]
    assert send(bob, "token", method="delete", pk=pk).status_code == 404
    assert send(api, "token", method="delete", pk=pk).status_code == 204
    assert AccessToken.objects.find(issued["token"]) is None


def test_a_token_with_its_label_alone_is_as_the_page_makes_it(api: Client, ada: User):
    issued = send(api, "tokens", {"label": "plain"}).json()
    assert issued["scopes"] == ["chat", "gateway"]
    assert issued["budget"] is issued["expires_at"] is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "label"),
        ({"label": 1}, "label"),
        ({"label": "a", "scopes": ["root"]}, "scopes"),
        ({"label": "a", "scopes": ["admin-read"]}, "scopes"),  # she is no staff
        ({"label": "a", "networks": ["home"]}, "networks"),
        ({"label": "a", "models": ["no-such"]}, "models"),
        ({"label": "a", "expires_on": "2001-01-01"}, "expires_on"),
        ({"label": "a", "requests_per_minute": -1}, "requests_per_minute"),
        ({"label": "a", "user": 1}, "user"),
    ],
)
def test_a_wrong_token_is_refused_by_its_field(api: Client, body: Any, param: str):
    done = send(api, "tokens", body)
    assert done.status_code in (400, 404), done.content
    assert done.json()["error"]["param"].startswith(param)
    assert not AccessToken.objects.exists()


def test_tokens_may_not_touch_the_account(ada: User):
    api = program(ada)
    kept = AccessToken.objects.count()
    for name, method in [
        *(("tokens", "get"), ("tokens", "post"), ("sessions", "get")),
        *(("sessions", "delete"), ("password", "post")),
    ]:
        done = send(api, name, {"label": "more"}, method=method)
        assert (done.status_code, done.json()["error"]["code"]) == (
            403,
            "insufficient_scope",
        )
    assert AccessToken.objects.count() == kept


def test_sessions_are_listed_and_ended(api: Client, ada: User):
    other = signed_in(ada)
    for client in (other, api):  # a request notes the session
        client.get(reverse("account"))
    listed = send(api, "sessions", method="get").json()["data"]
    assert sorted(each["is_own"] for each in listed) == [False, True]
    [theirs] = [each["id"] for each in listed if not each["is_own"]]
    bob = signed_in(a_user("bob"))
    assert send(bob, "session", method="delete", pk=theirs).status_code == 404
    assert send(api, "session", method="delete", pk=theirs).status_code == 204
    assert send(other, "sessions", method="get").status_code in (401, 403)
    third = signed_in(ada)
    assert send(api, "sessions", method="delete").status_code == 204
    assert send(third, "sessions", method="get").status_code in (401, 403)
    assert send(api, "sessions", method="get").status_code == 200


def test_the_password_changes_and_ends_other_sessions(api: Client, ada: User):
    other = signed_in(ada)
    wrong = {"old_password": "guess", "new_password": "a new and long one"}
    done = send(api, "password", wrong)
    assert (done.status_code, done.json()["error"]["param"]) == (400, "old_password")
    weak = {"old_password": "ada's old words", "new_password": "12345"}
    done = send(api, "password", weak)
    assert (done.status_code, done.json()["error"]["param"]) == (400, "new_password")
    assert send(other, "sessions", method="get").status_code == 200
    right = {**weak, "new_password": "a new and long one"}
    assert send(api, "password", right).status_code == 204
    ada.refresh_from_db()
    assert ada.check_password("a new and long one")
    assert send(api, "sessions", method="get").status_code == 200
    assert send(other, "sessions", method="get").status_code in (401, 403)


def test_memories_are_listed_and_forgotten(ada: User):
    api, bob = program(ada), program(a_user("bob"))
    row = Memory.objects.remember(ada.pk, "Likes tea.")
    [listed] = send(api, "memories", method="get").json()["data"]
    assert (listed["id"], listed["text"]) == (row.pk, "Likes tea.")
    assert send(bob, "memories", method="get").json()["data"] == []
    assert send(bob, "memory", method="delete", pk=row.pk).status_code == 404
    assert send(api, "memory", method="delete", pk=row.pk).status_code == 204
    assert send(api, "memories", method="get").json()["data"] == []


def test_conversations_are_found_by_their_words(ada: User):
    api = program(ada)
    row = Conversation.objects.create(owner=ada, title="A trip to Oslo")
    Conversation.objects.create(owner=a_user("bob"), title="Oslo as well")
    url = reverse("api:search")
    [found] = api.get(url, {"query": "oslo"}).json()["data"]
    assert (found["conversation"], found["title"]) == (row.pk, "A trip to Oslo")
    assert api.get(url, {"query": "bergen"}).json()["data"] == []
    for wrong in ({}, {"query": "a", "start": "-1"}, {"query": "a" * 201}):
        assert api.get(url, wrong).status_code == 400
