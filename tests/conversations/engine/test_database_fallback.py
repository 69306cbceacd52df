from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
from django.contrib.auth.models import User

from conversations.engine import claim_store, lease_store, question_store, turn_store
from conversations.engine.event_log import Entry, Position, TurnLog
from conversations.engine.lease_store import Snapshot
from conversations.engine.progress_store import TurnProgress
from conversations.engine.question_store import NewQuestion
from conversations.engine.row_entries import fallback_entries
from conversations.engine.shared_log.database_fallback import (
    extend_fallback,
    recent_question_ids,
)
from conversations.engine.shared_log.turns_from_rows import (
    StoredTurn,
    _load_turn,
    load_turns,
)
from conversations.models import Conversation, Question, ToolCall
from llm.wire.deltas import ItemDelta, ReasoningDelta, TextDelta, ToolCallDelta
from llm.wire.items import message, user_message
from llm.wire.response_builder import ResponseBuilder

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "content": []}
TEXTS = ["One", " and", " two", " and three."]


def standing_of(builder):
    """The state of the rows once all of the builder's events are in them."""
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


def turn_with_rows():
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
            case "parley:step.reset":
                output_index = event["output_index"]
                items = {
                    index: text for index, text in items.items() if index < output_index
                }
            case "response.output_item.added":
                items[event["output_index"]] = ""
            case (
                "response.output_text.delta"
                | "response.reasoning.delta"
                | "response.function_call_arguments.delta"
            ):
                items[event["output_index"]] += event["delta"]
    return items


EVENTS, STANDINGS = turn_with_rows()


def fallback_entries_after(log):
    return list(chain.from_iterable(log.fallback))


def test_rows_contain_every_event_of_the_run():
    for standing in STANDINGS:
        log, whole = TurnLog("resp_1"), TurnLog("resp_1")
        whole.append(1, EVENTS[: standing.sequence + 1])
        assert extend_fallback(log, standing)
        assert shown(fallback_entries_after(log)) == shown(whole.entries)


@pytest.mark.parametrize("standing", STANDINGS, ids=range(len(STANDINGS)))
def test_after_a_fallback_cut_anywhere_the_log_continues(standing):
    """The law: the same text in the end, and each number higher than the one before."""
    for known in range(len(EVENTS)):
        _assert_log_goes_on(known, standing)


def _assert_log_goes_on(known, standing, events=EVENTS, *, is_cut=True):
    log, whole = TurnLog("resp_1"), TurnLog("resp_1")
    log.append(1, events[:known])
    whole.append(1, events)
    extend_fallback(log, standing)
    beyond = fallback_entries_after(log)
    for cut in range(0 if is_cut else len(beyond), len(beyond) + 1):
        received = [*log.entries, *beyond[:cut]]
        last = received[-1].sequence if received else -1
        received += [entry for entry in whole.entries if entry.sequence > last]
        assert shown(received) == shown(whole.entries)
        places = [entry.log_position for entry in received]
        assert places == sorted(set(places))


@pytest.mark.parametrize("standing", STANDINGS, ids=range(len(STANDINGS)))
def test_a_subscriber_from_another_process_continues_only_without_a_gap(standing):
    for position in range(len(EVENTS)):
        _assert_nothing_is_missed(position, standing)


def _assert_nothing_is_missed(position, standing):
    log, whole = TurnLog("resp_1"), TurnLog("resp_1")
    whole.append(1, EVENTS)
    extend_fallback(log, standing)
    received = list(whole.entries[: position + 1])
    received += fallback_entries(log, Position(1, position))
    last = received[-1].sequence
    received += [entry for entry in whole.entries if entry.sequence > last]
    assert shown(received) == shown(whole.entries)


def continued(log, turn_with_rows):
    """All that a process sends to a subscriber that received so much elsewhere."""
    position = turn_with_rows[-1].log_position
    rest = (
        []
        if position > log.entries[-1].log_position
        else log.entries[position[1] + 1 :]
    )
    position = log.entries[-1].log_position if rest else position
    return [
        *turn_with_rows,
        *rest,
        *(fallback_entries(log, position) if log.fallback else []),
    ]


@pytest.mark.parametrize("known", [1, 8])
@pytest.mark.parametrize("standing", STANDINGS[::3], ids=range(len(STANDINGS[::3])))
def test_a_subscriber_that_changes_process_receives_all_its_rows_contain(
    known, standing
):
    """Both processes know so much of the log, and the second one reads later rows. The
    law: nothing is missing or repeated, nor when the log accepts writes again."""
    first, whole = TurnLog("resp_1"), TurnLog("resp_1")
    whole.append(1, EVENTS)
    first.append(1, EVENTS[:known])
    extend_fallback(first, standing)
    received = [*first.entries, *fallback_entries_after(first)]
    for later in STANDINGS[2::3]:
        second = TurnLog("resp_1")
        second.append(1, EVENTS[:known])
        extend_fallback(second, later)
        ahead = [*second.entries, *fallback_entries_after(second)]
        for cut in range(known, len(received) + 1, 2):
            there = continued(second, received[:cut])
            if there[-1].log_position == ahead[-1].log_position:
                assert shown(there) == shown(ahead)
            assert there[-1].log_position >= ahead[-1].log_position
            for cut_again in range(cut, len(there) + 1, 2):
                seen = there[:cut_again]
                last = seen[-1].sequence
                seen += [entry for entry in whole.entries if entry.sequence > last]
                assert shown(seen) == shown(whole.entries)


def test_an_incomplete_part_does_not_count_as_delivered():
    """A hosted search that is running: its row contains more than can be sent yet."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    builder.start()
    builder.add(message("assistant", "First"))
    end = builder.sequence - 1
    builder.feed([ItemDelta("s", {"type": "web_search_call"})])
    standing = standing_of(builder)
    log = TurnLog("resp_1")
    assert extend_fallback(log, standing)
    assert fallback_entries_after(log)[-1].log_position == Position(1, end)
    assert not extend_fallback(log, standing)


def test_growing_rows_are_delivered_as_they_grow():
    log = TurnLog("resp_1")
    for standing in STANDINGS:
        assert extend_fallback(log, standing)
        assert not extend_fallback(log, standing)
    whole = TurnLog("resp_1")
    whole.append(1, EVENTS)
    assert shown(fallback_entries_after(log)) == shown(whole.entries)


def test_delivered_parts_are_not_repeated_when_the_item_is_done():
    """Its parts were sent open, or closed; the rest is sent once, and in full."""
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
        received = [*log.entries, *fallback_entries_after(log)]
        assert [entry.type for entry in received] == whole
        assert received[-1].event["item"] == builder.output[0]


def several_open_items():
    """The events of a run that takes over three open items, how its rows stood before
    they ended, and at the end."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    events = builder.start()
    kept = {
        "r": {**REASONING, "content": [{"type": "reasoning_text", "text": "Hm."}]},
        "m": message("assistant", "First"),
        "n": message("assistant", "Second"),
    }
    for key, item in kept.items():
        events += builder.reopen(key, item)
    standings = [standing_of(builder)]
    events += builder.feed([TextDelta("n", " and more")])
    standings.append(standing_of(builder))
    for key in kept:
        events += builder.interrupt(key)
        standings.append(standing_of(builder))
    return events, standings


@pytest.mark.parametrize("number", range(5))
def test_after_a_fallback_with_several_open_items_the_log_continues(number: int):
    """All that the rows have is sent at once, so nothing is cut inside."""
    events, standings = several_open_items()
    for known in range(len(events)):
        _assert_log_goes_on(known, standings[number], events, is_cut=False)


def test_a_run_that_took_over_is_delivered_from_rows_too():
    """Subscribers of the run before drop its uncommitted events."""
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
    received = fallback_entries(log, log.entries[-1].log_position)
    assert received[0].type == "parley:step.reset"
    assert received[0].event["output_index"] == 1
    assert shown(received[1:]) == {1: "One and two."}
    assert {entry.epoch for entry in received[1:]} == {2}
    known = received[-1].log_position
    assert known == Position(2, standing.sequence)
    assert fallback_entries(log, known) == []
    late = fallback_entries(log, None)
    assert shown(late) == {0: "First", 1: "One and two."}
    places = {entry.event["type"]: entry.log_position for entry in late}
    whole = TurnLog("resp_1")
    whole.append(2, again)
    assert places["response.in_progress"] == whole.entries[1].log_position


@pytest.mark.django_db
def test_only_turns_of_which_rows_know_more_are_read_whole(django_assert_num_queries):
    owner = User.objects.create(username="anna")
    conversation = Conversation.objects.create(owner=owner)
    turn = conversation.open_turn([user_message("hello")]).turn
    mine = claim_store.claim(turn.pk)
    position = Position(1, 8)
    assert not load_turns({turn.pk: position}).turns, "the run has written nothing yet"
    lease_store.store_snapshot(mine, Snapshot([message("assistant", "First")], 8))
    with django_assert_num_queries(3):
        assert not load_turns({turn.pk: position}).turns
    assert load_turns({turn.pk: Position(1, 7)}).turns[turn.pk].sequence == 8
    assert load_turns({turn.pk: Position(0, -1)}).turns[turn.pk].sequence == 8


@pytest.mark.django_db
def test_events_written_during_the_read_are_not_delivered_twice():
    owner = User.objects.create(username="anna")
    conversation = Conversation.objects.create(owner=owner)
    turn = conversation.open_turn([user_message("hello")]).turn
    mine = claim_store.claim(turn.pk)
    first, second = message("assistant", "First"), message("assistant", "Second")
    turn_store.advance(
        mine, TurnProgress(items=[(first, None, 3)], first_position=1, last_sequence=5)
    )
    lease_store.store_snapshot(mine, Snapshot([second], 8))
    turn.refresh_from_db()
    before = _load_turn(turn)
    turn_store.advance(
        mine, TurnProgress(items=[(second, None, 9)], first_position=2, last_sequence=9)
    )
    assert _load_turn(turn) == before
    assert (before.done, before.open, before.sequence) == ([first], [second], 8)


QUESTION = {"id": "qst_1", "call_id": "call_1", "name": "act"}


@pytest.mark.parametrize("known", [0, 3, len(EVENTS)])
def test_rows_deliver_a_question_that_the_log_lacks(known):
    log = TurnLog("resp_1")
    log.append(1, EVENTS[:known])
    asking = replace(STANDINGS[-1], questions=[QUESTION], is_waiting=True)
    assert extend_fallback(log, asking)
    *_, question_entry, waiting = fallback_entries_after(log)
    assert question_entry.event["question"] == QUESTION
    assert waiting.type == "parley:turn.waiting"
    assert [question_entry.sequence, waiting.sequence] == [len(EVENTS), len(EVENTS) + 1]
    assert not extend_fallback(log, asking), "it is asked once"


def test_a_question_delivered_by_the_log_is_not_repeated():
    log, builder = TurnLog("resp_1"), ResponseBuilder(id="resp_1", model="m")
    question_event = builder.extension("parley:approval.requested", question=QUESTION)
    log.append(1, [*EVENTS, {**question_event[0], "sequence_number": len(EVENTS)}])
    assert recent_question_ids(log) == {"qst_1"}
    assert not extend_fallback(log, replace(STANDINGS[-1], questions=[QUESTION]))


@pytest.mark.django_db
def test_a_turn_that_waits_for_a_person_is_seen(django_assert_num_queries):
    owner = User.objects.create(username="anna")
    turn = (
        Conversation.objects.create(owner=owner).open_turn([user_message("hello")]).turn
    )
    mine = claim_store.claim(turn.pk)
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1"}
    call |= {"name": "act", "arguments": "{}", "status": "completed"}
    row = ToolCall.objects.create(turn=turn, call_id="call_1", name="act")
    items = [(call, None, 5)]
    progress = TurnProgress(items=items, first_position=1, last_sequence=5)
    new_question = NewQuestion(kind=Question.Kind.APPROVAL, schema={}, arguments={})
    (question,) = question_store.suspend(mine, progress, [(call, new_question)])
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
