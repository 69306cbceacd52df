"""What a running turn holds for as long as its answer takes."""

from __future__ import annotations

import gc
import weakref

import pytest

from conversations.engine import claim_store
from conversations.engine.loading.turn_loader import load
from conversations.models import Conversation
from conversations.requests.turn_request import TurnRequestSerializer
from llm.models import ApiKey, LanguageModel, Provider
from tests.conversations.scene import a_user


@pytest.fixture
def conversation(db):
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(
        provider=provider, name="demo", context_window=100_000
    )
    return Conversation.objects.create(owner=a_user(), language_model=model)


@pytest.fixture
def no_collection():
    """What is freed here is freed without the garbage collector."""
    gc.disable()
    yield
    gc.enable()


def opened_over_a_page(conversation):
    found = Conversation.objects.find(conversation.owner, conversation.pk)
    serializer = TurnRequestSerializer(
        data={"input": "Hi"}, context={"conversation": found, "user": found.owner}
    )
    serializer.is_valid(raise_exception=True)
    return serializer.save()


@pytest.mark.usefixtures("no_collection")
def test_a_loaded_turn_has_freed_its_rows(conversation):
    opened = opened_over_a_page(conversation)
    turn = opened.turn
    rows = [turn, turn.conversation, turn.language_model, turn.conversation.owner]
    references = [weakref.ref(row) for row in rows]
    work = load(claim_store.claim(turn.pk), opened)
    assert work.build_compactor  # it may need the model again during the turn
    del opened, turn, rows
    assert [reference() for reference in references] == [None] * 4
