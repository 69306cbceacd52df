"""Presets on the page, omitted context, and turns that results open."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from conversations.models import Conversation, Item, Question, ToolCall, Turn
from conversations.models.preset import NOTE_CONTEXT, NOTE_CONTEXT_FAILED, Preset
from conversations.pages.blocks import RESULT_CALL_ID
from conversations.pages.forms.message_form import MessageForm
from conversations.turns.tool_choices import choose_tools, tool_choices
from llm.models import LanguageModel
from llm.wire.items import message
from tests.conversations.page_scene import (
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    read,
    shown,
    submitted,
    web,
)
from tests.conversations.scene import a_model
from tools.models import Tool

__all__ = ["ada", "conversation", "model", "submitted", "web"]

HIDDEN_LINK = re.compile(r'href="/questions/"\s+hidden')
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture
def slow(model: LanguageModel) -> LanguageModel:
    return LanguageModel.objects.create(
        provider=model.provider, name="slow", alias="slow", label="Slow one"
    )


@pytest.fixture
def support(slow: LanguageModel) -> Preset:
    return Preset.objects.create(
        name="support",
        label="Support desk",
        description="Answers from the manual.",
        language_model=slow,
    )


def selected(page: str) -> list[str]:
    """Values of the radios that are on and of the options that are selected."""
    tags = re.findall(r"<(?:input|option)[^>]*>", page)
    on = [tag for tag in tags if re.search(r"\s(?:checked|selected)", tag)]
    on = [tag for tag in on if 'name="tool"' not in tag]
    return [re.search(r'value="([^"]*)"', tag).group(1) for tag in on]


# Beginning


def test_the_welcome_shows_the_presets_and_the_default_is_chosen(
    web: Client, support: Preset
):
    page = web.get("/")
    assert "Support desk Answers from the manual." in read(page)
    assert selected(page.content.decode()) == ["", ""]
    assert 'data-model="Fast one"' in page.content.decode()
    support.is_default = True
    support.save()
    page = web.get("/")
    assert selected(page.content.decode()) == ["support", ""]
    assert "Usual model" in read(page)


def test_without_presets_the_page_does_not_mention_them(
    web: Client, model: LanguageModel
):
    page = web.get("/")
    assert "Choose a preset" not in read(page)
    assert "Usual model" not in read(page)


def test_a_preset_brings_its_model_where_none_is_chosen(
    web: Client, support: Preset, slow: LanguageModel
):
    web.post("/", {"text": "Hi", "preset": "support", "model": ""})
    begun = Conversation.objects.get()
    assert (begun.preset, begun.language_model) == (support, None)
    assert begun.usual_model == begun.turns.get().language_model == slow
    other = a_model(name="third", alias="third")
    support.language_model = other
    support.save()
    begun = Conversation.objects.get()
    assert MessageForm(user=begun.owner, conversation=begun).chosen == other


def test_a_chat_offers_only_the_models_that_its_preset_allows(
    web: Client, support: Preset, slow: LanguageModel, model: LanguageModel
):
    third = a_model(name="third", alias="third")
    support.allowed_models.set([slow, third])
    refused = web.post("/", {"text": "Hi", "preset": "support", "model": "fast"})
    assert refused.status_code == 400
    assert "does not allow the model “Fast one”" in read(refused)
    compared = {"model": "slow", "compare": ["fast", "third"]}
    web.post("/", {"text": "Hi", "preset": "support", **compared})
    begun = Conversation.objects.get()
    names = {turn.language_model for turn in begun.turns.all()}
    assert names == {slow, third}
    form = MessageForm({"text": "Go on"}, user=begun.owner, conversation=begun)
    assert set(form.models) == {slow, third}
    page = web.get(f"/chat/{begun.pk}/").content.decode()
    assert 'value="slow"' in page
    assert 'value="fast"' not in page


def test_where_a_preset_does_not_allow_the_usual_model_another_one_answers(
    web: Client, support: Preset, slow: LanguageModel, model: LanguageModel
):
    support.language_model = None
    support.save()
    support.allowed_models.set([slow])
    assert 'data-models="[&quot;slow&quot;]"' in web.get("/").content.decode()
    web.post("/", {"text": "Hi", "preset": "support", "model": ""})
    assert Conversation.objects.get().turns.get().language_model == slow


def test_a_model_that_is_chosen_goes_before_the_presets(
    web: Client, support: Preset, model: LanguageModel
):
    web.post("/", {"text": "Hi", "preset": "support", "model": "fast"})
    begun = Conversation.objects.get()
    assert (begun.preset, begun.language_model) == (support, model)
    assert begun.turns.get().language_model == model


@pytest.mark.parametrize(("sent", "name"), [({}, "support"), ({"preset": ""}, None)])
def test_the_default_preset_is_preselected_and_none_is_a_choice(
    web: Client, support: Preset, sent: dict[str, str], name: str | None
):
    support.is_default = True
    support.save()
    web.post("/", {"text": "Hi", **sent})
    begun = Conversation.objects.get()
    assert (begun.preset and begun.preset.name) == name


def test_a_preset_that_is_not_permitted_is_refused(web: Client, support: Preset):
    support.groups.add(Group.objects.create(name="desk"))
    assert "Support desk" not in read(web.get("/"))
    answer = web.post("/", {"text": "Hi", "preset": "support"})
    assert answer.status_code == 400
    assert "The preset “support” is not available" in read(answer)
    assert not Conversation.objects.exists()


def test_a_refused_message_keeps_the_chosen_preset(web: Client, support: Preset):
    answer = web.post("/", {"text": "", "preset": "support", "model": "fast"})
    assert selected(answer.content.decode()) == ["support", "fast"]


def test_a_conversation_shows_and_keeps_its_preset(
    web: Client, conversation: Conversation, support: Preset
):
    conversation.preset = support
    conversation.save()
    web.post(page_of(conversation), {"text": "Hi", "preset": ""})
    conversation.refresh_from_db()
    assert conversation.preset == support
    page = web.get(page_of(conversation))
    assert "Preset: Support desk" in read(page)
    assert 'id="presets"' not in page.content.decode()


def test_only_tools_that_the_preset_allows_can_be_chosen(
    ada: Any, conversation: Conversation, support: Preset
):
    names = {choice.name for choice in tool_choices(ada, conversation)}
    assert {"calculator", "weather_demo"} <= names
    support.tools.add(Tool.objects.get(name="calculator"))
    conversation.preset = support
    assert [c.name for c in tool_choices(ada, conversation)] == ["calculator"]
    choose_tools(ada, conversation, [])
    assert conversation.options == {"disabled_tools": ["calculator"]}


def test_a_new_chats_boxes_count_as_far_as_its_preset_goes(
    web: Client, support: Preset
):
    support.tools.add(Tool.objects.get(name="calculator"))
    page = web.get("/").content.decode()
    assert 'data-tools="calculator"' in page
    sent = {"text": "Hi", "preset": "support", "tools_shown": "1"}
    web.post("/", {**sent, "tool": "calculator"})
    assert Conversation.objects.get().options == {}


def test_a_new_chat_gets_the_tools_that_only_its_preset_offers(
    web: Client, support: Preset
):
    support.tools.set(Tool.objects.filter(name__in=["calculator", "remember"]))
    assert 'value="remember"' not in web.get("/").content.decode()
    sent = {"text": "Hi", "preset": "support", "tools_shown": "1"}
    web.post("/", {**sent, "tool": "weather_demo"})
    assert Conversation.objects.get().options == {"disabled_tools": ["calculator"]}


def test_a_new_chats_preset_without_any_tool_offers_none(web: Client, support: Preset):
    support.only_named_tools = True
    support.save()
    page = web.get("/").content.decode()
    assert 'data-tools=""' in page
    assert page.count("data-tools=") == 1  # "No preset" allows all


# Turns


def test_omitted_context_is_shown(web: Client, conversation: Conversation):
    note = {"source": "orders", "text": "it failed: OSError.", "at": "2026-01-01"}
    notes = [
        {**note, "kind": NOTE_CONTEXT_FAILED},
        {"kind": NOTE_CONTEXT, "text": "Rules"},
    ]
    answer = message("assistant", "Well.")
    turn = a_turn(conversation, Turn.Status.COMPLETED, answer, notes=notes)
    words = read(shown(web, turn))
    assert "Answered without the context “orders”: it failed: OSError." in words
    assert "Rules" not in words


def a_wake_turn(conversation: Conversation, *items: dict[str, Any], **fields: Any):
    turn = conversation.open_turn([]).turn
    for position, item in enumerate(items):
        Item.of(turn, position, item, origin=Item.Origin.OUTPUT).save()
    Turn.objects.filter(pk=turn.pk).update(**fields)
    turn.refresh_from_db()
    return turn


def test_a_turn_for_a_result_shows_the_result_and_no_question(
    web: Client, conversation: Conversation
):
    result_message = {**message("user", "The result:\n\n42"), RESULT_CALL_ID: "call_1"}
    answer = message("assistant", "It is 42.")
    turn = a_wake_turn(
        conversation, result_message, answer, status=Turn.Status.COMPLETED
    )
    page = shown(web, turn)
    assert "The result" in read(page)
    assert "You said" not in read(page)
    assert 'class="asked' not in page.content.decode()


def test_a_turn_without_a_user_message_cannot_be_regenerated(
    web: Client, conversation: Conversation
):
    error = {"code": "E_LLM_PROVIDER_DOWN", "message": "Down."}
    turn = a_wake_turn(conversation, status=Turn.Status.FAILED, error=error)
    page = shown(web, turn)
    assert "Down." in read(page)
    assert 'data-action="retry"' not in page.content.decode()
    assert re.search(r"<article[^>]*hidden", page.content.decode()) is None


@pytest.mark.parametrize(
    ("status", "is_hidden"),
    [("completed", True), ("cancelled", True), ("in_progress", False)],
)
def test_a_turn_that_came_to_nothing_is_not_seen(
    web: Client, conversation: Conversation, status: str, is_hidden: bool
):
    turn = a_wake_turn(conversation, status=status)
    page = shown(web, turn).content.decode()
    assert bool(re.search(r"<article[^>]*hidden", page)) is is_hidden


# The menu


def test_the_menu_leads_to_what_is_remembered_and_what_waits(
    web: Client, conversation: Conversation
):
    page = web.get("/").content.decode()
    assert 'href="/settings/"' in page  # which leads to the memories
    assert HIDDEN_LINK.search(page)
    turn = a_turn(conversation, Turn.Status.WAITING)
    call = turn.tool_calls.create(call_id="call_1", name="calculator")
    Question.objects.create(
        tool_call=call,
        kind=Question.Kind.APPROVAL,
        expires_at=timezone.now() + timedelta(days=1),
    )
    assert call.state == ToolCall.State.PENDING
    page_now = web.get("/")
    assert 'href="/questions/"' in page_now.content.decode()
    assert not HIDDEN_LINK.search(page_now.content.decode())
    assert "Waiting for you 1" in read(page_now)
