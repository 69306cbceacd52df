"""A token with a list of tools uses no others, at any entry point."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.engine import background_store
from conversations.engine.loading import turn_setup
from conversations.engine.loading.available_tools import (
    load_available_tools,
    permitted_tools,
)
from conversations.models import AccessToken, Conversation, Question, ToolCall
from conversations.models.access_token import validate_tool_names
from llm.wire.items import user_message
from tests.conversations.scene import a_model, a_user, signed_in
from tools.models import Tool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

JSON = "application/json"
SEARCH = {"type": "web_search"}


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)


@pytest.fixture
def ada() -> User:
    Tool.objects.sync()
    a_model(is_default=True)
    return a_user("ada")


@pytest.fixture
def conversation(ada: User) -> Conversation:
    return Conversation.objects.create(owner=ada)


def issue(user: User, *names: str, **more: Any) -> tuple[AccessToken, Client]:
    """A token with these tools, and a program that has it."""
    row, token = AccessToken.issue(user, "t", allowed_tools=" ".join(names), **more)
    return row, Client(headers={"Authorization": f"Bearer {token}"})


def names_for(conversation: Conversation, token: AccessToken | None) -> set[str]:
    """What a turn of this token offers the model."""
    turn = conversation.open_turn([user_message("Hi")], access_token=token).turn
    found = load_available_tools(turn, {}, None, turn_setup.route_of_turn(turn))
    return {*found.tools}


def test_a_turn_has_the_tools_of_its_token(conversation: Conversation, ada: User):
    token, _ = issue(ada, "calculator")
    everything = names_for(conversation, None)
    assert {"calculator"} < everything
    assert names_for(conversation, issue(ada)[0]) == everything
    assert names_for(conversation, token) == {"calculator"}


@pytest.mark.parametrize(("name", "hosted"), [("calculator", 0), ("search", 1)])
def test_the_list_counts_for_tools_that_the_provider_runs(
    conversation: Conversation, ada: User, name: str, hosted: int
):
    Tool.objects.create(name="search", kind=Tool.Kind.HOSTED, definition=SEARCH)
    token, _ = issue(ada, name)
    turn = conversation.open_turn([user_message("Hi")], access_token=token).turn
    assert len(permitted_tools(turn).hosted) == hosted


def test_a_list_whose_tools_are_gone_allows_none(conversation: Conversation, ada: User):
    token, program = issue(ada, "dig")
    assert names_for(conversation, token) == set()
    assert program.get("/api/tools/").json()["data"] == []


def test_a_list_gives_no_tool_that_its_user_may_not_use(
    conversation: Conversation, ada: User
):
    Tool.objects.filter(name="calculator").update(enabled=False)
    assert names_for(conversation, issue(ada, "calculator")[0]) == set()


def test_other_tools_do_not_exist_for_the_token(conversation: Conversation, ada: User):
    _, program = issue(ada, "calculator")
    [listed] = program.get("/api/tools/").json()["data"]
    assert listed["name"] == "calculator"
    url = f"/api/conversations/{conversation.pk}/turns/"
    for name, status in (("calculator", 202), ("current_time", 400)):
        body = {"input": "Hi", "options": {"server_tools": [name]}}
        answer = program.post(url, body, content_type=JSON)
        assert answer.status_code == status, answer.content
    assert answer.json()["error"]["code"] == "unknown_tool"


def test_a_background_call_of_another_tool_does_not_run(
    conversation: Conversation, ada: User
):
    """The token was narrowed since the call was made."""
    token, _ = issue(ada, "calculator")
    turn = conversation.open_turn([user_message("Hi")], access_token=token).turn
    call = {"type": "function_call", "call_id": "c1", "name": "current_time"}
    turn.items.create(
        position=9,
        origin="output",
        type=call["type"],
        payload={**call, "arguments": "{}"},
    )
    row = ToolCall.objects.create(
        turn=turn,
        call_id="c1",
        name="current_time",
        state="executing",
        blocking=False,
    )
    claim = background_store.claim(row.pk)
    assert claim
    assert set(background_store.load(claim).tools) == {"calculator"}


def test_a_token_approves_calls_of_its_tools_alone(
    conversation: Conversation, ada: User
):
    turn = conversation.open_turn([user_message("Send it")]).turn
    call = ToolCall.objects.create(
        turn=turn, call_id="c1", name="send", state="awaiting_approval"
    )
    question = Question.objects.create(
        tool_call=call,
        kind="approval",
        arguments={},
        expires_at=timezone.now() + timedelta(hours=1),
    )
    url = f"/api/questions/{question.pk}/answer/"
    for name, status in (("calculator", 403), ("send", 200)):
        _, program = issue(ada, name, scopes=["approve"])
        answer = program.post(url, {"action": "accept"}, content_type=JSON)
        assert answer.status_code == status, answer.content


# Who gives a token its list


def test_people_choose_the_tools_on_the_page(ada: User):
    page, web = reverse("tokens"), signed_in(ada)
    form = {"label": "report", "scopes": ["chat"], "budget_period": "month"}
    answer = web.post(page, {**form, "allowed_tools": ["calculator", "current_time"]})
    assert answer.status_code == 200
    row = AccessToken.objects.get()
    assert row.tool_names == {"calculator", "current_time"}
    assert "calculator, current_time" in web.get(page).content.decode()
    Tool.objects.filter(name="calculator").update(enabled=False)
    answer = web.post(page, {**form, "allowed_tools": ["calculator"]})
    assert list(answer.context["form"].errors) == ["allowed_tools"]


def test_rest_takes_and_lists_them(ada: User):
    web, url = signed_in(ada), "/api/tokens/"
    body = {"label": "report", "tools": ["calculator"]}
    made = web.post(url, body, content_type=JSON)
    assert made.json()["tools"] == ["calculator"]
    [listed] = web.get(url).json()["data"]
    assert listed["tools"] == ["calculator"]
    refused = web.post(url, {**body, "tools": ["dig"]}, content_type=JSON)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "tools"
    assert web.post(url, {"label": "all"}, content_type=JSON).json()["tools"] == []


def test_the_admin_keeps_names_of_tools_that_are_gone(ada: User):
    """Else the list would become an empty one, which allows all tools."""
    root = signed_in(a_user("root", is_staff=True, is_superuser=True))
    row, _ = issue(ada, "dig")
    url = reverse("admin:conversations_accesstoken_change", args=[row.pk])
    form = root.get(url).context["adminform"].form
    boxes = form["allowed_tools"].value()
    assert boxes == ["dig"]
    fields = {"label": "t", "scopes": ["chat"], "budget_period": "total"}
    fields["seen"] = form["seen"].value()
    saved = root.post(url, {**fields, "allowed_tools": [*boxes, "calculator"]})
    assert saved.status_code == 302, saved.context["adminform"].form.errors
    row.refresh_from_db()
    assert row.allowed_tools == "calculator dig"


def test_the_command_gives_a_token_its_tools(ada: User):
    call_command("create_token", "ada", "--tool", "current_time", "--tool=calculator")
    assert AccessToken.objects.get().allowed_tools == "calculator current_time"
    with pytest.raises(CommandError, match="There is no tool 'dig'"):
        call_command("create_token", "ada", "--tool", "dig")


def test_a_name_that_no_tool_can_have_is_refused():
    validate_tool_names("calculator files-read")
    with pytest.raises(ValidationError, match="is no name of a tool"):
        validate_tool_names("calculator ../x")
