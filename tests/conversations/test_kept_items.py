"""What is kept of a conversation is what its rows say, whatever becomes of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.engine import item_loader
from conversations.engine.item_loader import CACHE_FROM, ItemCache, Items, items_of
from conversations.models import Conversation, Item, Turn
from llm.wire.items import new_id, user_message

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> ItemCache:
    memory = ItemCache()
    monkeypatch.setattr(item_loader, "item_cache", memory)
    return memory


@pytest.fixture
def conversation() -> Conversation:
    owner = User.objects.create_user("anna")
    conversation = Conversation.objects.create(owner=owner)
    for number in range(CACHE_FROM):
        said(conversation, str(number))
    return conversation


def said(conversation: Conversation, text: str, parent: Turn | None = None) -> Turn:
    """A turn that is over."""
    turn = conversation.open_turn([user_message(text)], parent=parent)
    answer = {"type": "message", "id": new_id("msg"), "role": "assistant"}
    answer["content"] = [{"type": "output_text", "text": f"{text}?"}]
    Item.of(turn, 1, answer, origin=Item.Origin.OUTPUT, provider_data={"a": 1}).save()
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.COMPLETED)
    return turn


def read(turn: Turn) -> Items:
    return items_of(Turn.objects.select_related("conversation").get(pk=turn.pk))


def anew(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> Items:
    with monkeypatch.context() as patched:
        patched.setattr(item_loader, "item_cache", ItemCache())
        return read(turn)


def test_the_next_turn_follows_from_what_is_kept(
    conversation, monkeypatch, django_assert_num_queries
):
    read(said(conversation, "last"))
    turn = said(conversation, "next")
    expected = anew(turn, monkeypatch)
    with django_assert_num_queries(2):  # one for the turn itself
        assert read(turn) == expected
    assert len(expected.before) == 2 * CACHE_FROM + 2
    assert read(turn) == expected  # taken up once more


def test_what_is_known_of_its_beginning_grows_with_it(conversation, monkeypatch):
    first = read(said(conversation, "last")).story
    turn = said(conversation, "next")
    story = read(turn).story
    assert story is not None
    assert story.length == len(read(turn).before) == first.length + 2
    assert story.cached.items == list(anew(turn, monkeypatch).story.cached.items)


def test_half_an_answer_is_not_known_as_over(conversation):
    asked = conversation.open_turn([user_message("?")])
    Turn.objects.filter(pk=asked.pk).update(status=Turn.Status.CANCELLED)
    assert read(said(conversation, "next")).story.length == 0
    # With the answer to what came after it, all is over.
    found = read(said(conversation, "and on"))
    assert found.story.length == len(found.before)


def test_a_sibling_follows_from_what_is_kept(conversation, monkeypatch):
    turn = said(conversation, "one way")
    read(turn)
    other = said(conversation, "another way", parent=turn.parent)
    assert read(other) == anew(other, monkeypatch)


def test_a_turn_elsewhere_is_read_from_its_rows(conversation, monkeypatch):
    read(said(conversation, "last"))
    early = conversation.turns.order_by("created_at")[5]
    turn = said(conversation, "from early on", parent=early)
    assert read(turn) == anew(turn, monkeypatch)
    assert len(read(turn).before) == 12


def test_what_is_corrected_is_told_as_corrected(conversation, monkeypatch):
    read(said(conversation, "last"))
    first = Item.objects.filter(turn__conversation=conversation).order_by("pk")[0]
    first.correct(user_message("redacted"))
    turn = said(conversation, "next")
    found = read(turn)
    assert found == anew(turn, monkeypatch)
    assert found.before[0]["content"] == user_message("redacted")["content"]
    # Proofs of what was said before it are gone.
    assert not any("provider_data" in item for item in found.before[:-2])


def test_what_is_taken_away_is_not_told(conversation, monkeypatch):
    last = said(conversation, "last")
    read(last)
    gone = conversation.turns.order_by("created_at")[3]
    gone.children.update(parent=gone.parent)
    gone.delete()
    turn = said(conversation, "next")
    assert read(turn) == anew(turn, monkeypatch)
    assert len(read(turn).before) == 2 * CACHE_FROM


def test_a_file_named_long_ago_is_looked_for(conversation):
    name: Any = {"type": "input_file", "file_id": "file_1"}
    message = {**user_message(""), "content": [name]}
    item = Item.objects.filter(turn__conversation=conversation).order_by("pk")[0]
    item.correct(message)
    read(said(conversation, "last"))
    assert read(said(conversation, "next")).may_have_files


def test_no_more_is_kept_than_there_is_room(conversation, monkeypatch):
    turn = said(conversation, "last")
    read(turn)
    kept = item_loader.item_cache.get(Turn.objects.get(pk=turn.pk))
    assert kept is not None
    small = ItemCache(kept.size)
    small.store("one", kept)
    small.store("two", kept)
    small.store("two", kept)
    assert list(small._cached) == ["two"]
    tiny = ItemCache(kept.size - 1)
    tiny.store("one", kept)
    assert not tiny._cached


def test_a_turn_that_is_to_be_stopped_leaves_nothing(conversation, memory):
    # It may be loaded while the turn before it still speaks.
    turn = said(conversation, "last")
    Turn.objects.filter(pk=turn.pk).update(cancel_requested=True)
    read(turn)
    assert memory.get(turn) is None
