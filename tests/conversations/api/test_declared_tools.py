"""Tools that a user's options declare, through REST, the page and its WebSocket."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from conversations.models import AccessToken, Conversation, Turn
from tests.conversations.scene import program
from tools.models import DeclaredTool

pytestmark = pytest.mark.django_db

CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
SEARCH = {"type": "web_search"}


@pytest.fixture
def user(conversation: Conversation) -> User:
    return conversation.owner


@pytest.fixture
def coders() -> Group:
    row = DeclaredTool.objects.get(kind="code_interpreter")
    row.allowed_for = DeclaredTool.AllowedFor.GROUPS
    row.save()
    coders = Group.objects.create(name="coders")
    row.groups.add(coders)
    return coders


def turn(
    conversation: Conversation, client: Client | None = None, **options: Any
) -> Any:
    url = f"/api/conversations/{conversation.pk}/turns/"
    body = {"input": "Hi", "options": options}
    client = client or program(conversation.owner)
    return client.post(url, body, content_type="application/json")


def declares(conversation: Conversation, *tools: Any, **client: Any) -> Any:
    # The demo has no tools of its own, so the request omits them.
    fields = {"tools": list(tools), "ignore_invalid_options": True}
    return turn(conversation, **client, **fields)


def check_refused(answer: Any, path: str) -> None:
    assert answer.status_code == 403, answer.content
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("tool_not_allowed", path)
    assert "a tool of the kind 'code_interpreter'" in error["message"]


def test_a_turn_declares_what_a_group_of_its_user_may(conversation, user, coders):
    check_refused(declares(conversation, SEARCH, CODE), "options.tools[1]")
    assert not Turn.objects.exists()
    assert declares(conversation, SEARCH).status_code == 202
    user.groups.add(coders)
    assert declares(conversation, SEARCH, CODE).status_code == 202


def test_superusers_count_as_of_every_group_and_no_more(conversation, user, coders):
    user.is_superuser = True
    user.save()
    assert declares(conversation, CODE).status_code == 202
    coders_row = DeclaredTool.objects.get(kind="code_interpreter")
    coders_row.allowed_for = DeclaredTool.AllowedFor.NOBODY
    coders_row.save()
    check_refused(declares(conversation, CODE), "options.tools[0]")


def test_an_older_token_goes_on_and_a_signed_in_user_does_not(conversation, user):
    token = AccessToken.issue(user, "old", declares_any_tool=True)[1]
    old = Client(headers={"authorization": f"Bearer {token}"})
    assert declares(conversation, CODE, client=old).status_code == 202
    signed_in = Client()
    signed_in.force_login(user)
    check_refused(declares(conversation, CODE, client=signed_in), "options.tools[0]")


def test_options_of_a_conversation_are_refused_when_written_and_when_used(
    conversation, user, coders
):
    url = f"/api/conversations/{conversation.pk}/"

    def write() -> Any:
        body = {"options": {"tools": [CODE], "ignore_invalid_options": True}}
        return program(user).patch(url, body, content_type="application/json")

    check_refused(write(), "options.tools[0]")
    user.groups.add(coders)
    assert write().status_code == 200
    assert turn(conversation).status_code == 202
    user.groups.remove(coders)
    check_refused(turn(conversation), "options.tools[0]")
    assert turn(conversation, tools=[]).status_code == 202


def test_a_page_without_scripts_shows_which_tool_is_not_allowed(conversation, user):
    conversation.options = {"tools": [CODE]}
    conversation.save()
    client = Client()
    client.force_login(user)
    url = reverse("conversation", args=[conversation.pk])
    answer = client.post(url, {"text": "Hi", "key": "k"})
    assert answer.status_code == 400
    assert "You may not declare a tool of the kind" in answer.content.decode()
    assert not Turn.objects.exists()


@pytest.mark.django_db(transaction=True)
async def test_an_open_page_receives_the_refusal_on_its_socket(conversation, page):
    options = {"tools": [CODE], "ignore_invalid_options": True}
    await page.say(type="turn.create", input="Hi", key="k", options=options)
    refused = await page.until("error")
    assert refused["key"] == "k"
    assert refused["error"]["code"] == "tool_not_allowed"
    assert refused["error"]["param"] == "options.tools[0]"
    assert not await Turn.objects.aexists()
