from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
from django.contrib.auth.models import User

from conversations.engine import turn_store
from conversations.engine.engine import _fallback_entries
from conversations.engine.event_log import Entry, Position, TurnLog
from conversations.engine.redis.database_fallback import (
    StoredTurn,
    _load_turn,
    extend_fallback,
    load_turns,
    recent_question_ids,
)
from conversations.engine.turn_store import NewQuestion, Snapshot, TurnProgress
from conversations.models import Conversation, Question, ToolCall
from llm.wire.deltas import ItemDelta, ReasoningDelta, TextDelta, ToolCallDelta
from llm.wire.items import message, user_message
from llm.wire.response import ResponseBuilder

TEXTS = ["One", " and", " two", " and three."]


def standing_of(builder):
    """How the rows stand once all that the builder has told is in them."""
    return StoredTurn(
        turn_id="resp_1",
        model="m",
        created_at=1,
        epoch=1,
        sequence=builder.sequence - 1,
        done=list(builder.output),
        ends=list(builder.done_at),
        open=builder.partial(),
    )


def told():
    """All events of a turn with items of each kind that grows, and how its rows stood
    after each batch."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    events = builder.start()
    standings = []

    def stands():
        standings.append(standing_of(builder))

    events += builder.add(message("assistant", "First"))
    stands()
    for delta in (
        *(ReasoningDelta("r", text) for text in ("Let me", " think", ".")),
        *(TextDelta("m", text) for text in TEXTS),
        ToolCallDelta("c", "call_1", "act", '{"a'),
        ToolCallDelta("c", arguments='": '),
        ToolCallDelta("c", arguments="1}"),
    ):
        events += builder.feed([delta])
        stands()
    events += builder.end_call()
    stands()
    return events, standings


def shown(entries):
    """What a client has on its screen, by item."""
    items: dict[int, str] = {}
    for entry in entries:
        event = entry.event
        match event["type"]:
            case "response.output_item.added":
                items[event["output_index"]] = ""
            case (
                "response.output_text.delta"
                | "response.reasoning.delta"
                | "response.function_call_arguments.delta"
            ):
                items[event["output_index"]] += event["delta"]
    return items


EVENTS, STANDINGS = told()


def stood_in(log):
    return list(chain.from_iterable(log.fallback))


def test_rows_tell_all_that_the_run_had_said():
    for standing in STANDINGS:
        log, whole = TurnLog("resp_1"), TurnLog("resp_1")
        whole.append(1, EVENTS[: standing.sequence + 1])
        assert extend_fallback(log, standing)
        assert shown(stood_in(log)) == shown(whole.entries)


@pytest.mark.parametrize("known", range(len(EVENTS)))
@pytest.mark.parametrize("standing", STANDINGS, ids=range(len(STANDINGS)))
def test_wherever_who_was_told_by_rows_is_cut_off_the_log_goes_on(known, standing):
    """The law: the same text in the end, and each number higher than the one before."""
    log, whole = TurnLog("resp_1"), TurnLog("resp_1")
    log.append(1, EVENTS[:known])
    whole.append(1, EVENTS)
    extend_fallback(log, standing)
    beyond = stood_in(log)
    for cut in range(len(beyond) + 1):
        told = [*log.entries, *beyond[:cut]]
        last = told[-1].sequence if told else -1
        told += [entry for entry in whole.entries if entry.sequence > last]
        assert shown(told) == shown(whole.entries)
        places = [entry.log_position for entry in told]
        assert places == sorted(set(places))


@pytest.mark.parametrize("place", range(len(EVENTS)))
@pytest.mark.parametrize("standing", STANDINGS, ids=range(len(STANDINGS)))
def test_who_was_told_elsewhere_goes_on_only_where_that_misses_nothing(place, standing):
    log, whole = TurnLog("resp_1"), TurnLog("resp_1")
    whole.append(1, EVENTS)
    extend_fallback(log, standing)
    told = list(whole.entries[: place + 1])
    told += _fallback_entries(log.fallback, log.entries, Position(1, place))
    last = told[-1].sequence
    told += [entry for entry in whole.entries if entry.sequence > last]
    assert shown(told) == shown(whole.entries)


def test_what_cannot_be_told_before_it_is_done_does_not_count_as_told():
    """A search of the provider's that goes on: the rows know more than they can
    tell."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    builder.start()
    builder.add(message("assistant", "First"))
    end = builder.sequence - 1
    builder.feed([ItemDelta("s", {"type": "web_search_call"})])
    standing = standing_of(builder)
    log = TurnLog("resp_1")
    assert extend_fallback(log, standing)
    assert stood_in(log)[-1].log_position == Position(1, end)
    assert not extend_fallback(log, standing)


def test_rows_that_grow_are_told_as_they_grow():
    log = TurnLog("resp_1")
    for standing in STANDINGS:
        assert extend_fallback(log, standing)
        assert not extend_fallback(log, standing)
    whole = TurnLog("resp_1")
    whole.append(1, EVENTS)
    assert shown(stood_in(log)) == shown(whole.entries)


def test_what_was_told_of_an_item_is_not_told_again_when_it_is_done():
    """Its parts were told open, or closed; what is left is told once, and in full."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    events = builder.start()
    for part, text in enumerate(["Look", "Think", "Act"]):
        events += builder.feed([ReasoningDelta("r", text, "summary", part)])
    events += builder.end_call()
    whole = [event["type"] for event in events]
    for known in range(3, len(events)):
        log = TurnLog("resp_1")
        log.append(1, events[:known])
        assert extend_fallback(log, standing_of(builder))
        told = [*log.entries, *stood_in(log)]
        assert [entry.type for entry in told] == whole
        assert told[-1].event["item"] == builder.output[0]


def test_a_run_that_took_the_turn_over_is_told_from_rows_too():
    """Whoever followed the run before drops what was not committed."""
    before = ResponseBuilder(id="resp_1", model="m", created_at=1)
    events = before.start()
    events += before.add(message("assistant", "First"))
    done_at = Position(1, before.done_at[0])
    events += before.feed([TextDelta("m", "One and")])
    log = TurnLog("resp_1")
    log.append(1, events)
    after = ResponseBuilder(id="resp_1", model="m", created_at=1)
    again = [*after.start(), *after.restore(before.output, None)]
    again += after.feed([TextDelta("n", "One and two.")])
    standing = replace(
        standing_of(after), epoch=2, ends=[None], earlier_positions={0: done_at}
    )
    assert extend_fallback(log, standing)
    told = _fallback_entries(log.fallback, log.entries, log.entries[-1].log_position)
    assert told[0].type == "parley:step.reset"
    assert told[0].event["output_index"] == 1
    assert shown(told[1:]) == {1: "One and two."}
    assert {entry.epoch for entry in told[1:]} == {2}
    known = told[-1].log_position
    assert known == Position(2, standing.sequence)
    assert _fallback_entries(log.fallback, log.entries, known) == []
    late = _fallback_entries(log.fallback, log.entries, None)
    assert shown(late) == {0: "First", 1: "One and two."}
    places = {entry.event["type"]: entry.log_position for entry in late}
    whole = TurnLog("resp_1")
    whole.append(2, again)
    assert places["response.in_progress"] == whole.entries[1].log_position


@pytest.mark.django_db
def test_only_turns_of_which_rows_know_more_are_read_whole(django_assert_num_queries):
    owner = User.objects.create(username="anna")
    conversation = Conversation.objects.create(owner=owner)
    turn = conversation.open_turn([user_message("hello")])
    mine = turn_store.claim(turn.pk)
    place = Position(1, 8)
    assert not load_turns({turn.pk: place}).turns, "the run has written nothing yet"
    turn_store.store_snapshot(mine, Snapshot([message("assistant", "First")], 8))
    with django_assert_num_queries(3):
        assert not load_turns({turn.pk: place}).turns
    assert load_turns({turn.pk: Position(1, 7)}).turns[turn.pk].sequence == 8
    assert load_turns({turn.pk: Position(0, -1)}).turns[turn.pk].sequence == 8


@pytest.mark.django_db
def test_what_is_written_while_the_rows_are_read_is_not_told_twice():
    owner = User.objects.create(username="anna")
    conversation = Conversation.objects.create(owner=owner)
    turn = conversation.open_turn([user_message("hello")])
    mine = turn_store.claim(turn.pk)
    first, second = message("assistant", "First"), message("assistant", "Second")
    turn_store.advance(
        mine, TurnProgress(items=[(first, None, 3)], first_position=1, last_sequence=5)
    )
    turn_store.store_snapshot(mine, Snapshot([second], 8))
    turn.refresh_from_db()
    before = _load_turn(turn)
    turn_store.advance(
        mine, TurnProgress(items=[(second, None, 9)], first_position=2, last_sequence=9)
    )
    assert _load_turn(turn) == before
    assert (before.done, before.open, before.sequence) == ([first], [second], 8)


QUESTION = {"id": "qst_1", "call_id": "call_1", "name": "act"}


@pytest.mark.parametrize("known", [0, 3, len(EVENTS)])
def test_rows_ask_what_the_log_has_not_asked(known):
    log = TurnLog("resp_1")
    log.append(1, EVENTS[:known])
    asking = replace(STANDINGS[-1], questions=[QUESTION], is_waiting=True)
    assert extend_fallback(log, asking)
    *_, asked, waiting = stood_in(log)
    assert asked.event["question"] == QUESTION
    assert waiting.type == "parley:turn.waiting"
    assert [asked.sequence, waiting.sequence] == [len(EVENTS), len(EVENTS) + 1]
    assert not extend_fallback(log, asking), "it is asked once"


def test_a_question_that_the_log_asked_is_not_asked_again():
    log, builder = TurnLog("resp_1"), ResponseBuilder(id="resp_1", model="m")
    asked = builder.extension("parley:approval.requested", question=QUESTION)
    log.append(1, [*EVENTS, {**asked[0], "sequence_number": len(EVENTS)}])
    assert recent_question_ids(log) == {"qst_1"}
    assert not extend_fallback(log, replace(STANDINGS[-1], questions=[QUESTION]))


@pytest.mark.django_db
def test_a_turn_that_waits_for_a_person_is_seen(django_assert_num_queries):
    owner = User.objects.create(username="anna")
    turn = Conversation.objects.create(owner=owner).open_turn([user_message("hello")])
    mine = turn_store.claim(turn.pk)
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1"}
    call |= {"name": "act", "arguments": "{}", "status": "completed"}
    row = ToolCall.objects.create(turn=turn, call_id="call_1", name="act")
    items = [(call, None, 5)]
    progress = TurnProgress(items=items, first_position=1, last_sequence=5)
    asked = NewQuestion(kind=Question.Kind.APPROVAL, schema={}, arguments={})
    (question,) = turn_store.suspend(mine, progress, [(call, asked)])
    assert question.tool_call == row
    standing = load_turns({turn.pk: Position(1, 5)}).turns[turn.pk]
    assert [each["id"] for each in standing.questions] == [question.pk]
    assert standing.is_waiting
    with django_assert_num_queries(3):
        assert not load_turns({turn.pk: Position(1, 7)}, {question.pk}).turns


def test_another_epoch_waits_for_the_log():
    log = TurnLog("resp_1")
    log.append(2, EVENTS[:3])
    assert not extend_fallback(log, STANDINGS[-1])
    assert isinstance(log.entries[0], Entry)
