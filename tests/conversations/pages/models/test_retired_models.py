"""What the chat says of models that are retired or will be, and which one it picks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from conversations.models import Conversation, Turn
from conversations.models.user_settings import UserSettings
from llm.models import LanguageModel
from tests.conversations.page_scene import (
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    read,
    submitted,
    web,
)
from tests.conversations.scene import a_model

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture
def old(model: LanguageModel) -> LanguageModel:
    """Retired; the default model answers for it."""
    return a_model("old", alias="old", label="Old one") if model else None


def retire(row: LanguageModel, by: LanguageModel | None, days: int = -1) -> None:
    row.retires_at = timezone.now() + timedelta(days=days)
    row.replacement = by
    row.save()


def test_a_conversation_with_a_retired_model_says_who_answers(
    web: Client, conversation: Conversation, model: LanguageModel, old: LanguageModel
):
    a_turn(conversation, "completed", language_model=old)
    assert "retired" not in read(web.get(page_of(conversation)))
    retire(old, model)
    page = read(web.get(page_of(conversation)))
    assert "Old one is retired; Fast one answers." in page
    web.post(page_of(conversation), {"text": "Go on", "model": "old"})
    assert Turn.objects.latest("created_at").language_model == model


@pytest.mark.parametrize("replaced", [True, False])
def test_the_end_of_a_model_is_announced(web, conversation, model, old, replaced: bool):
    a_turn(conversation, "completed", language_model=old)
    retire(old, model if replaced else None, days=3)
    page = read(web.get(page_of(conversation)))
    assert "Old one will be retired on " in page
    assert ("then Fast one answers." in page) is replaced
    assert ("choose another model until then." in page) is not replaced


def test_a_replacement_that_the_user_may_not_use_is_not_named(
    web, conversation, model, old
):
    secret = a_model("secret", label="Secret one")
    secret.groups.add(Group.objects.create(name="few"))
    a_turn(conversation, "completed", language_model=old)
    for days in (3, -1):
        retire(old, secret, days)
        assert "Secret one" not in read(web.get(page_of(conversation)))
    answer = web.post(page_of(conversation), {"text": "Go on", "model": "old"})
    assert "The model “old” is not available" in read(answer)


def test_the_default_model_s_replacement_is_the_default(web: Client, model, old):
    a_model("another", label="A first one")
    model.is_default = False
    model.save()
    old.make_default()
    retire(old, model)
    assert "Old one is retired; Fast one answers." in read(web.get("/"))


def test_the_user_s_own_default_is_replaced_too(web: Client, ada: Any, model, old):
    better = a_model("better", label="Better one")
    UserSettings.objects.update_or_create(user=ada, defaults={"default_model": old})
    retire(old, better)
    assert "Old one is retired; Better one answers." in read(web.get("/"))
