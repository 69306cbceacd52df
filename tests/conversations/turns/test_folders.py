"""What a folder makes of its conversations, from its rows to the prompt."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.engine import claim_store
from conversations.engine.loading import turn_loader
from conversations.models import Conversation, Folder, Turn
from conversations.models.preset import Preset
from llm.models import ApiKey, LanguageModel, Provider
from llm.wire.items import user_message
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def conversation() -> Conversation:
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    LanguageModel.objects.create(provider=provider, name="demo", is_default=True)
    ada = a_user("ada")
    folder = Folder.objects.create(owner=ada, name="Work", instructions="The folder's.")
    preset = Preset.objects.create(name="p", instructions="The preset's.")
    return Conversation.objects.create(owner=ada, folder=folder, preset=preset)


def load(conversation: Conversation, **options: Any) -> Any:
    row = Conversation.objects.get(pk=conversation.pk)
    turn = row.open_turn([user_message("hi")], options=options).turn
    claim = claim_store.claim(turn.pk)
    assert claim
    work = turn_loader.load(claim)
    Turn.objects.update(status=Turn.Status.COMPLETED)
    return work


def prompt(conversation: Conversation, **options: Any) -> str:
    instructions: str = load(conversation, **options).task.prepare([]).instructions
    return instructions


def change(conversation: Conversation, **fields: Any) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(**fields)


def test_instructions_of_the_folder_stand_between_conversation_and_preset(
    conversation: Conversation,
):
    assert prompt(conversation).startswith("The folder's.")
    change(conversation, instructions="The conversation's.")
    assert prompt(conversation).startswith("The conversation's.")
    change(conversation, instructions="")
    Folder.objects.update(instructions="")
    assert prompt(conversation).startswith("The preset's.")


def test_texts_of_the_folder_are_context_of_each_turn(conversation: Conversation):
    folder = conversation.folder
    assert folder
    folder.files.create(name="prices.txt", text="Tea: 3 €", size=9)
    for _ in range(2):
        assert "### prices.txt\n\nTea: 3 €" in prompt(conversation)
    change(conversation, folder=None)
    assert "Tea" not in prompt(conversation)


def test_the_model_of_the_folder_stands_between_conversation_and_preset(
    conversation: Conversation,
):
    provider = Provider.objects.get()
    models = [
        LanguageModel.objects.create(provider=provider, name=name) for name in "abc"
    ]
    Preset.objects.update(language_model=models[0])
    assert load(conversation).route.model == "a"
    Folder.objects.update(language_model=models[1])
    assert load(conversation).route.model == "b"
    change(conversation, language_model=models[2])
    assert load(conversation).route.model == "c"
