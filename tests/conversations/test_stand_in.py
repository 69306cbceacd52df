from __future__ import annotations

from itertools import chain

import pytest
from django.contrib.auth.models import User

from conversations.engine import rows
from conversations.engine.core import _from_stand_in
from conversations.engine.log import Entry, Position, TurnLog
from conversations.engine.rows import Progress, Snapshot
from conversations.engine.stand_in import Standing, _standing, lengthen
from conversations.models import Conversation
from llm.wire.deltas import TextDelta, ToolCallDelta
from llm.wire.items import message, user_message
from llm.wire.response import ResponseBuilder

TEXTS = ["One", " and", " two", " and three."]


def standing_of(builder):
    """How the rows stand once all that the builder has told is in them."""
    return Standing(
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
    """All events of a turn with two items, and how its rows stood after each batch."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    events = builder.start()
    standings = []

    def stands():
        standings.append(standing_of(builder))

    events += builder.add(message("assistant", "First"))
    stands()
    for text in TEXTS:
        events += builder.feed([TextDelta("m", text)])
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
            case "response.output_text.delta":
                items[event["output_index"]] += event["delta"]
    return items


EVENTS, STANDINGS = told()


def stood_in(log):
    return list(chain.from_iterable(log.stand_in))


def test_rows_tell_all_that_the_run_had_said():
    for standing in STANDINGS:
        log, whole = TurnLog("resp_1"), TurnLog("resp_1")
        whole.append(1, EVENTS[: standing.sequence + 1])
        assert lengthen(log, standing)
        assert shown(stood_in(log)) == shown(whole.entries)


@pytest.mark.parametrize("known", range(len(EVENTS)))
@pytest.mark.parametrize("standing", STANDINGS, ids=range(len(STANDINGS)))
def test_wherever_who_was_told_by_rows_is_cut_off_the_log_goes_on(known, standing):
    """The law: the same text in the end, and each number higher than the one before."""
    log, whole = TurnLog("resp_1"), TurnLog("resp_1")
    log.append(1, EVENTS[:known])
    whole.append(1, EVENTS)
    lengthen(log, standing)
    beyond = stood_in(log)
    for cut in range(len(beyond) + 1):
        told = [*log.entries, *beyond[:cut]]
        last = told[-1].sequence if told else -1
        told += [entry for entry in whole.entries if entry.sequence > last]
        assert shown(told) == shown(whole.entries)
        places = [entry.place for entry in told]
        assert places == sorted(set(places))


@pytest.mark.parametrize("place", range(len(EVENTS)))
@pytest.mark.parametrize("standing", STANDINGS, ids=range(len(STANDINGS)))
def test_who_was_told_elsewhere_goes_on_only_where_that_misses_nothing(place, standing):
    log, whole = TurnLog("resp_1"), TurnLog("resp_1")
    whole.append(1, EVENTS)
    lengthen(log, standing)
    told = list(whole.entries[: place + 1])
    told += _from_stand_in(log.stand_in, log.entries, Position(1, place))
    last = told[-1].sequence
    told += [entry for entry in whole.entries if entry.sequence > last]
    assert shown(told) == shown(whole.entries)


def test_what_cannot_be_told_before_it_is_done_does_not_count_as_told():
    """A call whose arguments come in: the rows know more than they can tell."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    builder.start()
    builder.add(message("assistant", "First"))
    end = builder.sequence - 1
    builder.feed([ToolCallDelta("c", "call_1", "act", '{"a')])
    standing = standing_of(builder)
    log = TurnLog("resp_1")
    assert lengthen(log, standing)
    assert stood_in(log)[-1].place == Position(1, end)
    assert not lengthen(log, standing)


def test_rows_that_grow_are_told_as_they_grow():
    log = TurnLog("resp_1")
    for standing in STANDINGS:
        assert lengthen(log, standing)
        assert not lengthen(log, standing)
    whole = TurnLog("resp_1")
    whole.append(1, EVENTS)
    assert shown(stood_in(log)) == shown(whole.entries)


@pytest.mark.django_db
def test_what_is_written_while_the_rows_are_read_is_not_told_twice():
    owner = User.objects.create(username="anna")
    conversation = Conversation.objects.create(owner=owner)
    turn = conversation.open_turn([user_message("hello")])
    mine = rows.claim(turn.pk)
    first, second = message("assistant", "First"), message("assistant", "Second")
    rows.advance(
        mine, Progress(items=[(first, None, 3)], first_position=1, last_sequence=5)
    )
    rows.keep(mine, Snapshot([second], 8))
    turn.refresh_from_db()
    before = _standing(turn)
    rows.advance(
        mine, Progress(items=[(second, None, 9)], first_position=2, last_sequence=9)
    )
    assert _standing(turn) == before
    assert (before.done, before.open, before.sequence) == ([first], [second], 8)


def test_another_epoch_waits_for_the_log():
    log = TurnLog("resp_1")
    log.append(2, EVENTS[:3])
    assert not lengthen(log, STANDINGS[-1])
    assert isinstance(log.entries[0], Entry)
