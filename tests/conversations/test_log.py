from __future__ import annotations

import asyncio

import orjson
import pytest

from conversations.engine.log import Fenced, Position, TurnLog, entries_after
from llm.wire.deltas import TextDelta
from llm.wire.response import ResponseBuilder


def told(epoch=1, items=("One.", "Two."), log=None, seen=None):
    """A log with a message an item, each in two deltas."""
    builder = ResponseBuilder(id="resp_1", model="m")
    log = log or TurnLog("resp_1")
    events = builder.start()
    for number, text in enumerate(items):
        events += builder.feed([TextDelta(number, text[:2])])
        events += builder.feed([TextDelta(number, text[2:])])
    events += builder.complete()
    log.append(epoch, events, seen)
    return log, builder


def test_positions_are_read_as_they_are_written():
    assert Position.parse(str(Position(2, 41))) == Position(2, 41)
    assert Position(1, 99) < Position(2, 0)


@pytest.mark.parametrize("text", ["", "7", "a-b", "1-", "-1", "1-2-3", "1" * 40 + "-1"])
def test_what_is_no_position_is_refused(text):
    with pytest.raises(ValueError, match=r"position"):
        Position.parse(text)


def test_a_follower_is_told_what_it_has_not_been_told():
    log, _ = told()
    for entry in log.entries:
        rest = entries_after(log.entries, entry.place)
        assert rest == log.entries[entry.place.sequence + 1 :]


def test_a_follower_from_an_earlier_epoch_drops_what_was_not_committed():
    _, builder = told()
    first_done = Position(1, builder.done_at[0])
    log, _ = told(epoch=2, seen={0: first_done})
    after = Position(1, first_done.sequence + 3)  # in the second message
    reset, *rest = entries_after(log.entries, after)
    assert reset.event["type"] == "parley:step.reset"
    assert reset.event["output_index"] == 1
    assert reset.position == str(after)
    assert {e.event.get("output_index", 1) for e in rest} == {1}
    assert rest[-1].is_last


def test_a_run_that_was_taken_over_can_say_nothing_more():
    log, _ = told(epoch=2)
    with pytest.raises(Fenced):
        log.append(1, [])


def test_an_entry_is_the_event_with_its_place():
    log, _ = told()
    entry = log.entries[5]
    event = orjson.loads(entry.data)
    assert orjson.loads(entry.ws) == {**event, "turn": "resp_1", "position": "1-5"}
    assert entry.frame.startswith(b"id: 1-5\nevent: " + event["type"].encode())


async def test_whoever_waits_is_woken():
    log = TurnLog("resp_1")
    waiting = [asyncio.ensure_future(log.changed()) for _ in range(3)]
    await asyncio.sleep(0)
    log.append(1, [])
    await asyncio.gather(*waiting)
