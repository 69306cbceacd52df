"""The cache of a conversation equals its rows, whatever changes them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.engine.loading import item_loader
from conversations.engine.loading.item_cache import (
    HALF_LIFE,
    CachedItems,
    ItemCache,
    memory_limit,
)
from conversations.engine.loading.item_loader import CACHE_FROM, Items, load_items
from conversations.models import Conversation, Item, Turn
from conversations.turns.compaction import PINNED, Plan, compaction_item
from conversations.turns.history import HistoryPrefix
from llm.wire.items import function_call_output, new_id, user_message

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
        finished_turn(conversation, str(number))
    return conversation


def finished_turn(
    conversation: Conversation, text: str, parent: Turn | None = None
) -> Turn:
    """A turn that is over."""
    turn = conversation.open_turn([user_message(text)], parent=parent).turn
    answer = {"type": "message", "id": new_id("msg"), "role": "assistant"}
    answer["content"] = [{"type": "output_text", "text": f"{text}?"}]
    Item.of(turn, 1, answer, origin=Item.Origin.OUTPUT, provider_data={"a": 1}).save()
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.COMPLETED)
    return turn


def read(turn: Turn) -> Items:
    return load_items(Turn.objects.select_related("conversation").get(pk=turn.pk))


def anew(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> Items:
    with monkeypatch.context() as patched:
        patched.setattr(item_loader, "item_cache", ItemCache())
        return read(turn)


def test_the_next_turn_continues_from_the_cache(
    conversation, monkeypatch, django_assert_num_queries
):
    read(finished_turn(conversation, "last"))
    turn = finished_turn(conversation, "next")
    expected = anew(turn, monkeypatch)
    with django_assert_num_queries(2):  # one for the turn itself
        assert read(turn) == expected
    assert len(expected.before) == 2 * CACHE_FROM + 2
    assert read(turn) == expected  # taken up once more


def test_the_cached_prefix_grows_with_the_conversation(conversation, monkeypatch):
    first = read(finished_turn(conversation, "last")).history_prefix
    turn = finished_turn(conversation, "next")
    prefix = read(turn).history_prefix
    assert prefix is not None
    assert prefix.length == len(read(turn).before) == first.length + 2
    assert prefix.cached.items == list(
        anew(turn, monkeypatch).history_prefix.cached.items
    )


def test_half_an_answer_is_not_known_as_over(conversation):
    open_turn = conversation.open_turn([user_message("?")]).turn
    Turn.objects.filter(pk=open_turn.pk).update(status=Turn.Status.CANCELLED)
    assert read(finished_turn(conversation, "next")).history_prefix.length == 0
    # With the answer to what came after it, all is over.
    found = read(finished_turn(conversation, "and on"))
    assert found.history_prefix.length == len(found.before)


def test_a_sibling_turn_continues_from_the_cache(conversation, monkeypatch):
    turn = finished_turn(conversation, "one way")
    read(turn)
    other = finished_turn(conversation, "another way", parent=turn.parent)
    assert read(other) == anew(other, monkeypatch)


def test_a_turn_elsewhere_is_read_from_its_rows(conversation, monkeypatch):
    read(finished_turn(conversation, "last"))
    early = conversation.turns.order_by("created_at")[5]
    turn = finished_turn(conversation, "from early on", parent=early)
    assert read(turn) == anew(turn, monkeypatch)
    assert len(read(turn).before) == 12


def test_a_corrected_item_replaces_the_cached_one(conversation, monkeypatch):
    read(finished_turn(conversation, "last"))
    first = Item.objects.filter(turn__conversation=conversation).order_by("pk")[0]
    first.correct(user_message("redacted"))
    turn = finished_turn(conversation, "next")
    found = read(turn)
    assert found == anew(turn, monkeypatch)
    assert found.before[0]["content"] == user_message("redacted")["content"]
    # The proofs before it are removed.
    assert not any("provider_data" in item for item in found.before[:-2])


def test_a_removed_item_leaves_the_cache(conversation, monkeypatch):
    last = finished_turn(conversation, "last")
    read(last)
    deleted = conversation.turns.order_by("created_at")[3]
    deleted.children.update(parent=deleted.parent)
    deleted.delete()
    turn = finished_turn(conversation, "next")
    assert read(turn) == anew(turn, monkeypatch)
    assert len(read(turn).before) == 2 * CACHE_FROM


def test_a_file_named_long_ago_is_looked_for(conversation):
    name: Any = {"type": "input_file", "file_id": "file_1"}
    message = {**user_message(""), "content": [name]}
    item = Item.objects.filter(turn__conversation=conversation).order_by("pk")[0]
    item.correct(message)
    read(finished_turn(conversation, "last"))
    assert read(finished_turn(conversation, "next")).may_have_files


def test_the_cache_stays_within_its_size(conversation, monkeypatch):
    turn = finished_turn(conversation, "last")
    read(turn)
    cached = item_loader.item_cache.get(conversation.pk)
    assert cached is not None
    small = ItemCache(cached.size)
    small.store("one", cached)
    small.store("two", cached)
    small.store("two", cached)
    assert small.get("one") is None
    assert small.get("two") is cached
    tiny = ItemCache(cached.size - 1)
    tiny.store("one", cached)
    assert tiny.get("one") is None


def cached_items(turn_id: str, size: int) -> CachedItems:
    return CachedItems(turn_id, None, 0, (), HistoryPrefix(), False, size)


def is_cached(cache: ItemCache, conversation_id: str) -> bool:
    return cache.get(conversation_id) is not None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def use(cache: ItemCache, conversation_id: str, size: int = 100_000) -> bool:
    """A turn of the conversation. Returns whether it was cached."""
    was_cached = is_cached(cache, conversation_id)
    cache.store(conversation_id, cached_items(f"last of {conversation_id}", size))
    return was_cached


def test_a_rotation_through_too_many_conversations_finds_some_of_them():
    cache = ItemCache(10 * 100_000, Clock())
    names = [f"conversation {n}" for n in range(20)]
    for name in names * 3:
        use(cache, name)
    found = [use(cache, name) for name in names * 5]
    assert sum(found) == 50  # with the oldest replaced first, none


def test_conversations_that_nobody_uses_any_more_give_way():
    clock = Clock()
    cache = ItemCache(3 * 100_000, clock)
    for name in ["a", "b", "c"] * 50:
        use(cache, name)
    clock.now += 10 * HALF_LIFE
    assert [use(cache, "d") for _ in range(3)] == [False, False, True]


def test_what_is_cheap_to_read_for_its_size_goes_first():
    cache = ItemCache(500_000, Clock())
    for name, size in (("long", 400_000), ("short", 50_000)) * 3:
        use(cache, name, size)
    for _ in range(5):
        use(cache, "new", 100_000)
    assert is_cached(cache, "short")
    assert not is_cached(cache, "long")


class Weighed:
    """Cached items that count how often anything looks at their size."""

    def __init__(self) -> None:
        self.looks = 0

    @property
    def size(self) -> int:
        self.looks += 1
        return 10_000


def test_a_full_cache_costs_the_same_however_much_it_caches():
    looks = {}
    for count in (500, 5_000):
        cache, weighed = ItemCache(count * 10_000, Clock()), Weighed()
        for number in range(count):
            cache.store(f"old {number}", weighed)
        weighed.looks = 0
        for number in range(50):
            cache.store(f"new {number}", weighed)
        looks[count] = weighed.looks
    assert looks[5_000] == looks[500]


@pytest.mark.parametrize("stay", [5, 500])
def test_a_long_conversation_gets_the_room_of_many_short_ones(stay: int):
    clock = Clock()
    cache = ItemCache(1_000 * 10_000, clock)
    names = [f"short {number}" for number in range(1_000)]
    for name in names:
        use(cache, name, 10_000)
    clock.now += 20 * HALF_LIFE
    size = (1_000 - stay) * 10_000
    assert not use(cache, "long", size)
    assert not use(cache, "long", size)  # one use alone replaces nothing
    assert use(cache, "long", size)
    assert sum(is_cached(cache, name) for name in names) == stay


def test_what_is_used_stays_among_thousands_that_nobody_uses():
    clock = Clock()
    cache = ItemCache(2_000 * 10_000, clock)
    for number in range(2_000):
        use(cache, f"once {number}", 10_000)
    used = [f"used {number}" for number in range(50)]
    for name in used * 4:
        use(cache, name, 10_000)
    for number in range(3_000):
        use(cache, f"later {number}", 10_000)
        use(cache, f"later {number}", 10_000)
        if number % 100 == 0:
            found = [use(cache, name, 10_000) for name in used]
            assert all(found)


def test_the_size_is_a_share_of_memory(settings):
    settings.HISTORY_CACHE_SHARE = 50
    large = memory_limit() // 5 // 4
    cache = ItemCache()
    use(cache, "large", large)
    assert is_cached(cache, "large")
    settings.HISTORY_CACHE_SHARE = 0
    least = ItemCache()
    use(least, "large", large)
    assert not is_cached(least, "large")


def test_a_turn_that_is_to_be_stopped_leaves_nothing(conversation, memory):
    # It may be loaded while the turn before it still speaks.
    turn = finished_turn(conversation, "last")
    Turn.objects.filter(pk=turn.pk).update(cancel_requested=True)
    read(turn)
    assert memory.get(conversation.pk) is None


def test_a_summary_of_half_an_answer_belongs_to_that_turn_alone(
    conversation, monkeypatch
):
    for row in Item.objects.filter(turn__conversation=conversation, origin="input"):
        row.correct({**row.payload, PINNED: True})
    turn = conversation.open_turn([user_message("Count")]).turn
    for number in (1, 3):
        call = {"type": "function_call", "call_id": "c", "name": "count"}
        call = {**call, "id": new_id("fc"), "arguments": "{}", "status": "completed"}
        output = function_call_output("c", str(number))
        for place, item in enumerate([call, output], start=number):
            Item.of(turn, place, item, origin=Item.Origin.OUTPUT).save()
    plan = Plan(
        through={"turn": turn.pk, "position": 2}, messages=40, summary="", items=()
    )
    item = compaction_item(plan, "They counted.")
    Item.of(turn, 5, item, origin=Item.Origin.OUTPUT).save()
    assert read(turn).covered == 2
    assert len(read(turn).before) > CACHE_FROM
    assert read(turn) == anew(turn, monkeypatch)  # taken up once more
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.COMPLETED)
    other = finished_turn(conversation, "another way", parent=turn.parent)
    assert read(other) == anew(other, monkeypatch)
    read(turn)
    following = finished_turn(conversation, "next", parent=turn)
    assert read(following) == anew(following, monkeypatch)
