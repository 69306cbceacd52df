"""Shared fixtures of the page tests: a signed-in user, a conversation, and the text of
a page. A module imports the fixtures it needs by name."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from conversations import engine
from conversations.models import Conversation, Item, Turn
from llm.models import LanguageModel
from llm.wire.items import user_message
from tests.conversations.scene import a_model, a_user, signed_in

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "weather_demo",
    "arguments": '{"city": "Paris"}',
    "status": "completed",
}
THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "status": "completed",
    "summary": [{"type": "summary_text", "text": "It is about **Paris**."}],
    "content": [{"type": "reasoning_text", "text": "raw"}],
}


@pytest.fixture(autouse=True)
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Turns that were handed to the engine."""
    turns: list[str] = []
    monkeypatch.setattr(engine, "submit", lambda turn, *_, **__: turns.append(turn))
    return turns


@pytest.fixture
def model() -> LanguageModel:
    return a_model(is_default=True, alias="fast", label="Fast one")


@pytest.fixture
def ada(model: LanguageModel) -> Any:
    return a_user("ada")


@pytest.fixture
def web(ada: Any) -> Client:
    return signed_in(ada)


@pytest.fixture
def conversation(ada: Any) -> Conversation:
    return Conversation.objects.create(owner=ada, title="Paris")


def page_of(conversation: Conversation) -> str:
    return reverse("conversation", args=[conversation.pk])


def read(response: Any) -> str:
    """The page's words, without its markup."""
    page = response.content.decode()
    body = re.sub(r"<template.*?</template>|<svg.*?</svg>", "", page, flags=re.DOTALL)
    body = re.sub(r"</?(?:span|strong|em|code)\b[^>]*>", "", body)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def a_turn(
    conversation: Conversation,
    status: str,
    *output: dict[str, Any],
    **fields: Any,
) -> Turn:
    turn = conversation.open_turn([user_message("What is the weather?")]).turn
    for position, item in enumerate(output, 1):
        Item.of(turn, position, item, origin=Item.Origin.OUTPUT).save()
    Turn.objects.filter(pk=turn.pk).update(status=status, **fields)
    turn.refresh_from_db()
    return turn


def shown(web: Client, turn: Turn) -> Any:
    return web.get(reverse("turn", args=[turn.conversation_id, turn.pk]))
