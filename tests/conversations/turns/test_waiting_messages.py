"""Messages that wait behind a running turn: order, change, removal, races."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from conversations.engine import claim_store, staff_actions
from conversations.models import (
    BranchChoice,
    Conversation,
    IdempotencyKey,
    MessageRemoved,
    Turn,
)
from conversations.turns import waiting_messages
from conversations.turns.waiting_messages import AlreadySent, CannotSteer, QueueChanged
from llm.wire.items import text_of, user_message
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db


def say(conversation: Conversation, text: str, **fields: Any) -> Turn:
    return waiting_messages.open_message(
        conversation, [user_message(text)], **fields
    ).turn


def texts(conversation: Conversation) -> list[str]:
    return [
        text_of(turn.items.get().payload)
        for turn in waiting_messages.load(conversation.pk)
    ]


def line_of(conversation: Conversation) -> list[str]:
    """The texts along the parents, from the last turn on."""
    turns = {turn.pk: turn for turn in conversation.turns.all()}
    last = conversation.turns.order_by("-created_at", "-id").first()
    line = []
    while last is not None:
        line.append(text_of(last.items.first().payload))
        last = turns.get(last.parent_id or "")
    return line[::-1]


@pytest.fixture
def running(conversation: Conversation) -> Turn:
    turn = say(conversation, "first")
    assert claim_store.claim(turn.pk)
    return turn


def test_what_runs_and_what_is_about_to_run_does_not_wait(conversation):
    first = say(conversation, "first")
    second = say(conversation, "second")
    assert waiting_messages.load(conversation.pk) == [second]
    assert claim_store.claim(first.pk)
    assert waiting_messages.load(conversation.pk) == [second]


def test_a_message_moves_and_the_line_stays_one_line(conversation, running):
    b, c, d = (say(conversation, text) for text in "bcd")
    waiting_messages.move(d, -1)
    assert texts(conversation) == ["b", "d", "c"]
    waiting_messages.move(b, 1)
    assert texts(conversation) == ["d", "b", "c"]
    waiting_messages.move(c, -10)
    waiting_messages.move(b, 99)
    assert texts(conversation) == ["c", "d", "b"]
    assert line_of(conversation) == ["first", "c", "d", "b"]
    later = say(conversation, "e")
    assert later.parent_id == b.pk


def test_the_next_message_is_the_first_of_the_new_order(conversation, running):
    _, c = (say(conversation, text) for text in "bc")
    waiting_messages.move(c, -1)
    Turn.objects.filter(pk=running.pk).update(status="completed")
    assert claim_store.find_next_turns(conversation.pk) == ([c.pk], False)
    assert claim_store.claim(c.pk)


def test_an_order_must_name_exactly_the_waiting_messages(conversation, running):
    b, c = (say(conversation, text) for text in "bc")
    for wrong in ([b.pk], [b.pk, c.pk, running.pk], [b.pk, b.pk], []):
        with pytest.raises(QueueChanged):
            waiting_messages.reorder(conversation.pk, wrong)
    waiting_messages.reorder(conversation.pk, [c.pk, b.pk])
    assert texts(conversation) == ["c", "b"]


def test_a_changed_message_keeps_its_place(conversation, running):
    b, _ = (say(conversation, text) for text in "bc")
    before = conversation.rewritten
    waiting_messages.change(b, [user_message("better")])
    assert texts(conversation) == ["better", "c"]
    conversation.refresh_from_db()
    assert conversation.rewritten > before


def test_what_a_run_has_taken_is_refused_and_unchanged(conversation, running):
    b = say(conversation, "b")
    Turn.objects.filter(pk=running.pk).update(status="completed")
    assert claim_store.claim(b.pk)
    acts = [
        lambda: waiting_messages.change(b, [user_message("late")]),
        lambda: waiting_messages.remove(b),
        lambda: waiting_messages.move(b, -1),
        lambda: waiting_messages.steer(b),
        lambda: waiting_messages.interrupt(b),
    ]
    for act in acts:
        with pytest.raises(AlreadySent):
            act()
    assert text_of(b.items.get().payload) == "b"


def test_a_removed_message_leaves_the_line_whole_and_is_not_sent_again(
    conversation, running
):
    def open_turn() -> Turn:
        return say(conversation, "b")

    ask = ("key", "print", open_turn)
    b, _ = IdempotencyKey.objects.get_or_open(conversation.owner, *ask)
    say(conversation, "c")
    waiting_messages.remove(b)
    assert line_of(conversation) == ["first", "c"]
    with pytest.raises(MessageRemoved):
        IdempotencyKey.objects.get_or_open(conversation.owner, *ask)
    assert texts(conversation) == ["c"]


def test_the_key_of_a_deleted_branch_gives_nothing_of_it(conversation, running):
    ask = ("key", "print", partial(say, conversation, "b"))
    b, _ = IdempotencyKey.objects.get_or_open(conversation.owner, *ask)
    Turn.objects.filter(pk=b.pk).update(deleted_at=timezone.now())
    with pytest.raises(MessageRemoved):
        IdempotencyKey.objects.get_or_open(conversation.owner, *ask)
    Turn.objects.filter(pk=b.pk).update(deleted_at=None)
    again = IdempotencyKey.objects.get_or_open(conversation.owner, *ask)
    assert again == (b, False), "it was restored"


def test_an_interrupting_message_is_next_and_stops_what_runs(conversation, running):
    say(conversation, "b")
    opened = waiting_messages.open_message(
        conversation, [user_message("now")], "interrupt"
    )
    assert opened.interrupted == [running]
    assert texts(conversation) == ["now", "b"]
    running.refresh_from_db()
    assert running.cancel_requested


def open_compared(conversation: Conversation, count: int = 3) -> list[Turn]:
    first = say(conversation, "Which?", comparison="cmp_1")
    beside = {"parent": first.parent, "is_first": first.parent_id is None}
    others = [
        say(conversation, "Which?", comparison="cmp_1", **beside)
        for _ in range(count - 1)
    ]
    BranchChoice.objects.choose(conversation.pk, conversation.owner_id, first.pk)
    return [first, *others]


@pytest.mark.parametrize("ended", [[], [0], [1]])
def test_an_interrupting_message_stops_all_answers_that_are_compared(
    conversation, ended
):
    compared = open_compared(conversation)
    for turn in compared:
        assert claim_store.claim(turn.pk)
    over = [compared[number] for number in ended]
    Turn.objects.filter(pk__in=[turn.pk for turn in over]).update(status="completed")
    elsewhere = say(conversation, "elsewhere", is_first=True)
    before = [turn for turn in compared if turn not in over]
    opened = waiting_messages.open_message(
        conversation, [user_message("now")], "interrupt", parent=compared[0]
    )
    assert opened.turn.parent_id == compared[0].pk
    assert {turn.pk for turn in opened.interrupted} == {turn.pk for turn in before}
    stopped = Turn.objects.filter(cancel_requested=True)
    assert set(stopped) == set(before)
    assert elsewhere not in stopped


def test_a_message_behind_compared_answers_that_wait_interrupts_all(
    conversation, running
):
    compared = open_compared(conversation)
    opened = waiting_messages.open_message(
        conversation, [user_message("now")], "interrupt", parent=compared[0]
    )
    assert set(opened.interrupted) == {running, *compared}


def test_a_waiting_message_sent_at_once_stops_all_answers_that_are_compared(
    conversation,
):
    compared = open_compared(conversation)
    for turn in compared:
        assert claim_store.claim(turn.pk)
    waiting = say(conversation, "b", parent=compared[0])
    assert set(waiting_messages.interrupt(waiting)) == set(compared)


def test_nothing_is_interrupted_where_nothing_runs(conversation):
    opened = waiting_messages.open_message(
        conversation, [user_message("now")], "interrupt"
    )
    assert not opened.interrupted
    assert not Turn.objects.filter(cancel_requested=True).exists()
    assert say(conversation, "x", when="steer").steering != "taken"


def test_a_gateway_turn_is_neither_steered_nor_moved(conversation):
    first = say(conversation, "first", options={"gateway": {"echo": {}}})
    assert claim_store.claim(first.pk)
    b = say(conversation, "b", when="steer")
    assert b.steering == ""
    with pytest.raises(CannotSteer):
        waiting_messages.steer(b)
    hosted = say(conversation, "c", options={"gateway": {"echo": {}}})
    say(conversation, "d")
    assert texts(conversation) == ["b"]
    with pytest.raises(AlreadySent):
        waiting_messages.move(hosted, -1)


def test_a_message_with_a_file_waits_for_its_own_turn(conversation, running):
    item = user_message("look")
    item["content"].append({"type": "input_file", "file_id": "file_1"})
    opened = waiting_messages.open_message(conversation, [item], "steer")
    assert opened.turn.steering == ""
    text = say(conversation, "b", when="steer")
    assert text.steering == "asked"
    with pytest.raises(CannotSteer):
        waiting_messages.change(text, [item])


def test_taken_messages_cannot_be_changed_and_are_taken_again(conversation, running):
    b, c = (say(conversation, text, when="steer") for text in "bc")
    say(conversation, "d")
    for _ in range(2):  # a second run after a crash
        taken = waiting_messages.take(running.pk, conversation.pk)
        assert [turn_id for turn_id, _ in taken] == [b.pk, c.pk]
    with pytest.raises(AlreadySent):
        waiting_messages.remove(c)
    waiting_messages.absorb([b.pk, c.pk], running.pk)
    assert texts(conversation) == ["d"]
    assert line_of(conversation) == ["first", "d"]
    assert waiting_messages.take(running.pk, conversation.pk) == []


def test_a_retry_by_staff_leaves_a_waiting_message_to_its_sender(conversation, running):
    waiting = say(conversation, "b")
    assert staff_actions.retry(waiting.pk)
    assert texts(conversation) == ["b"]
    waiting_messages.change(waiting, [user_message("c")])
    assert texts(conversation) == ["c"]
    epoch = Turn.objects.get(pk=running.pk).epoch
    assert staff_actions.retry(running.pk)
    assert Turn.objects.get(pk=running.pk).epoch == epoch + 1


def test_a_repeated_request_of_an_absorbed_message_finds_the_turn(
    conversation, running
):
    ask = ("key", "print", lambda: say(conversation, "b", when="steer"))
    b, _ = IdempotencyKey.objects.get_or_open(conversation.owner, *ask)
    waiting_messages.absorb([b.pk], running.pk)
    found, is_new = IdempotencyKey.objects.get_or_open(conversation.owner, *ask)
    assert (found, is_new) == (running, False)
    assert conversation.turns.count() == 1


MOVES = st.lists(
    st.tuples(
        st.sampled_from(["move", "remove", "add", "front"]),
        st.integers(0, 5),
        st.integers(-4, 4),
    ),
    max_size=12,
)


class TestLine(TestCase):
    @pytest.mark.slow
    @pytest.mark.smoke
    @settings(max_examples=15, deadline=None)
    @given(MOVES)
    def test_the_times_and_the_parents_always_agree(self, moves):
        owner = a_user(f"u{Turn.objects.count()}-{id(moves)}")
        conversation = Conversation.objects.create(owner=owner)
        first = say(conversation, "first")
        claim_store.claim(first.pk)
        for number in range(3):
            say(conversation, str(number))
        for act, which, places in moves:
            waiting = waiting_messages.load(conversation.pk)
            if act == "add" or not waiting:
                say(conversation, f"{act}{which}")
                continue
            turn = waiting[which % len(waiting)]
            match act:
                case "move":
                    waiting_messages.move(turn, places)
                case "remove":
                    waiting_messages.remove(turn)
                case "front":
                    waiting_messages.interrupt(turn)
            assert line_of(conversation) == ["first", *texts(conversation)]


def test_a_message_behind_a_stopped_one_waits_and_can_be_changed(conversation, running):
    b, c = (say(conversation, text) for text in "bc")
    Turn.objects.filter(pk=b.pk).update(status="cancelled", epoch=1)
    assert texts(conversation) == ["c"]
    waiting_messages.change(c, [user_message("better")])
    waiting_messages.steer(c)
    taken = waiting_messages.take(running.pk, conversation.pk)
    assert [turn_id for turn_id, _ in taken] == [c.pk]


def test_branches_that_wait_are_not_mixed(conversation, running):
    other = waiting_messages.open_message(
        conversation, [user_message("x")], is_first=True
    ).turn
    assert claim_store.claim(other.pk)
    ends = {"a": running, "x": other}
    turns: dict[str, Turn] = {}
    for name in ("a1", "x1", "a2", "x2"):
        parent = ends[name[0]]
        turns[name] = ends[name[0]] = say(conversation, name, parent=parent)
    with pytest.raises(QueueChanged):
        waiting_messages.reorder(conversation.pk, [turn.pk for turn in turns.values()])
    waiting_messages.move(turns["a2"], -5)
    for turn in (turns["a1"], turns["a2"], turns["x2"]):
        turn.refresh_from_db()
    assert turns["a2"].parent_id == running.pk
    assert turns["a1"].parent_id == turns["a2"].pk
    assert turns["x2"].parent_id == turns["x1"].pk
    opened = waiting_messages.open_message(
        conversation, [user_message("now")], "interrupt", parent=turns["x2"]
    )
    assert opened.interrupted == [other]
    steering = say(conversation, "s", when="steer", parent=turns["a1"])
    assert waiting_messages.take(other.pk, conversation.pk) == []
    assert [pk for pk, _ in waiting_messages.take(running.pk, conversation.pk)] == [
        steering.pk
    ]


def test_the_viewer_of_a_removed_message_sees_the_branch_before_it(
    conversation, running
):
    b = say(conversation, "b")
    BranchChoice.objects.choose(conversation.pk, conversation.owner_id, b.pk)
    waiting_messages.remove(b)
    shown = BranchChoice.objects.shown_leaf(conversation.pk, conversation.owner_id)
    assert shown == running.pk


def test_a_message_does_not_join_a_turn_of_another_author_that_runs_meanwhile(
    conversation, running
):
    guest = say(conversation, "b", author=a_user("guest"))
    asked = say(conversation, "c", when="steer")
    assert asked.steering == "asked"
    Turn.objects.filter(pk=running.pk).update(status="completed")
    assert claim_store.claim(guest.pk)
    assert waiting_messages.take(guest.pk, conversation.pk) == []
    assert texts(conversation) == ["c"]
    waiting_messages.change(asked, [user_message("better")])
