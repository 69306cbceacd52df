from __future__ import annotations

import pytest

from conversations.engine.log import Entry, Position, TurnLog
from conversations.engine.stand_in import Standing, lengthen
from llm.wire.deltas import TextDelta
from llm.wire.items import message
from llm.wire.response import ResponseBuilder

TEXTS = ["One", " and", " two", " and three."]


def told():
    """All events of a turn with two items, and how its rows stood after each batch."""
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    events = builder.start()
    standings = []

    def stands():
        standings.append(
            Standing(
                turn_id="resp_1",
                model="m",
                created_at=1,
                epoch=1,
                sequence=builder.sequence - 1,
                done=list(builder.output),
                open=builder.partial(),
            )
        )

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


@pytest.mark.parametrize("known", range(len(EVENTS)))
@pytest.mark.parametrize("standing", STANDINGS, ids=range(len(STANDINGS)))
def test_rows_tell_what_lies_beyond_and_nothing_twice(known, standing):
    log = TurnLog("resp_1")
    log.append(1, EVENTS[:known])
    whole = TurnLog("resp_1")
    whole.append(1, EVENTS[: standing.sequence + 1])
    if lengthen(log, standing):
        assert shown([*log.entries, *log.stand_in]) == shown(whole.entries)
        places = [entry.place for entry in [*log.entries, *log.stand_in]]
        assert places == sorted(set(places))
        assert places[-1] == Position(1, standing.sequence)
    else:
        assert not log.stand_in


def test_rows_that_grow_are_told_as_they_grow():
    log = TurnLog("resp_1")
    for standing in STANDINGS:
        assert lengthen(log, standing)
        assert not lengthen(log, standing)
    whole = TurnLog("resp_1")
    whole.append(1, EVENTS)
    assert shown(log.stand_in) == shown(whole.entries)


def test_another_epoch_waits_for_the_log():
    log = TurnLog("resp_1")
    log.append(2, EVENTS[:3])
    assert not lengthen(log, STANDINGS[-1])
    assert isinstance(log.entries[0], Entry)
