"""The items that a turn loads are those of its rows, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.engine.loading.item_loader import load_items
from conversations.models import Conversation, Item, Turn
from llm.wire.items import message, text_of, user_message

pytestmark = pytest.mark.django_db
PROOF = {"issuer": {"provider": "p", "model": "m", "route": "1:1"}, "raw": {"a": 1}}


@pytest.fixture
def conversation() -> Conversation:
    return Conversation.objects.create(owner=User.objects.create_user("ada"))


def turn_with(
    conversation: Conversation, parent: Turn | None, *items: Any, proof: Any = None
) -> Turn:
    turn = Turn.objects.create(
        conversation=conversation, parent=parent, status=Turn.Status.COMPLETED
    )
    for position, item in enumerate(items):
        origin = Item.Origin.INPUT if item["role"] == "user" else Item.Origin.OUTPUT
        proven = proof if origin == Item.Origin.OUTPUT else None
        Item.of(turn, position, item, origin=origin, provider_data=proven).save()
    return turn


def test_only_ancestor_turns_are_loaded_in_order(conversation):
    first = turn_with(conversation, None, user_message("1"), message("assistant", "2"))
    turn_with(conversation, first, user_message("aside"))
    second = turn_with(conversation, first, user_message("3"))
    third = turn_with(conversation, second, user_message("4"), user_message("5"))
    found = load_items(third)
    assert [text_of(item) for item in found.before] == ["1", "2", "3"]
    assert [text_of(row.payload) for row in found.inputs] == ["4", "5"]
    assert found.outputs == []


def test_a_proof_goes_with_what_it_proves_and_with_nothing_else(conversation):
    pair = (user_message("1"), message("assistant", "2"))
    first = turn_with(conversation, None, *pair, proof=PROOF)
    question, answered = load_items(turn_with(conversation, first)).before
    assert "provider_data" not in question
    assert answered == {**pair[1], "provider_data": PROOF}


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_proof_that_is_empty_is_none(conversation, nothing):
    answer = message("assistant", "2")
    first = turn_with(conversation, None, answer, proof=nothing)
    assert load_items(turn_with(conversation, first)).before == [answer]


@pytest.mark.parametrize("is_past", [True, False])
def test_a_conversation_with_files_is_recognised(conversation, is_past):
    file = {"type": "input_image", "file_id": "file_1"}
    question = {**user_message("See"), "content": [file]}
    turn = turn_with(conversation, None, question)
    if is_past:
        turn = turn_with(conversation, turn, user_message("And?"))
    assert load_items(turn).may_have_files


def test_one_that_only_speaks_of_files_has_none(conversation):
    turn = turn_with(conversation, None, user_message('Send "file_id": "file_1".'))
    assert not load_items(turn).may_have_files


def test_corrected_and_erased_items_are_loaded_as_they_are_now(conversation):
    first = turn_with(conversation, None, user_message("1"), message("assistant", "2"))
    second = turn_with(conversation, first, user_message("3"))
    third = turn_with(conversation, second, user_message("4"))
    load_items(third)
    question, answered = first.items.all()
    question.correct({**question.payload, "content": "other"})
    answered.delete()
    assert [text_of(item) for item in load_items(third).before] == ["other", "3"]


def test_an_item_is_found_by_its_id_without_reading_the_others(conversation):
    turn = turn_with(conversation, None, *[user_message(str(n)) for n in range(30)])
    rows = list(turn.items.order_by("position"))
    named = Item.objects.with_ids(
        [rows[7].payload["id"], rows[21].payload["id"], "msg_"]
    )
    assert {row.pk for row in named} == {rows[7].pk, rows[21].pk}
    assert "conversations_item_said_id" in named.explain()


@pytest.mark.parametrize("length", [81, 100_000])
def test_an_id_may_be_as_long_as_a_client_likes(conversation, length: int):
    messages = [{**user_message("Hi"), "id": "x" * length + end} for end in "ab"]
    turn = turn_with(conversation, None, *messages)
    assert Item.objects.with_ids([messages[1]["id"]]).get() == turn.items.last()
    assert not Item.objects.with_ids(["x" * 80]).exists()
