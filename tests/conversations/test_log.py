from __future__ import annotations

import asyncio
import gc
import hashlib
import random
import tracemalloc
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from django.db import OperationalError
from hypothesis import given
from hypothesis import strategies as st

from conversations.engine import packed_events as kept_in
from conversations.engine.database.executor import Database
from conversations.engine.engine import Engine
from conversations.engine.event_log import (
    MAX_BYTES,
    MAX_ENTRIES,
    MAX_RETAINED,
    DirectSink,
    Entry,
    MemoryLog,
    Position,
    StaleEpoch,
    TurnLog,
    encode_event,
    entries_after,
    portions,
    reset_entry,
)
from llm.wire import websocket_frame
from llm.wire.deltas import CloseDelta, ReasoningDelta, TextDelta, ToolCallDelta
from llm.wire.item_stream import TextBuffer
from llm.wire.items import output_text
from llm.wire.response import ResponseBuilder
from llm.wire.sanitize import sanitize_text


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
        rest = entries_after(log.entries, entry.log_position)
        assert rest == log.entries[entry.log_position.sequence + 1 :]


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
    with pytest.raises(StaleEpoch):
        log.append(1, [])


def test_an_entry_is_the_event_with_its_place():
    log, _ = told()
    entry = log.entries[5]
    event = orjson.loads(entry.data)
    assert orjson.loads(entry.ws) == {**event, "turn": "resp_1", "position": "1-5"}
    assert entry.ws_frame() == websocket_frame.frame(entry.ws.encode())
    assert entry.frame.startswith(b"id: 1-5\nevent: " + event["type"].encode())


pieces = st.sampled_from(["a", "", "\\n", '","delta":"', "\u00e9\n", "x" * 50])
batches = st.lists(
    st.lists(
        st.one_of(
            pieces.map(lambda text: TextDelta(0, text)),
            pieces.map(lambda text: ReasoningDelta("r", text)),
            pieces.map(lambda text: ToolCallDelta("c", "call_1", "add", text)),
            st.just(CloseDelta(0)),
        ),
        max_size=3,
    ),
    max_size=100,
)


class Unmerged(ResponseBuilder):
    merges = False


@given(batches, st.data())
def test_what_was_said_is_kept_to_the_byte(batches, data):
    log, builder = TurnLog("resp_1"), Unmerged(id="resp_1", model="m")
    told = []
    for events in [builder.start(), *map(builder.feed, batches), builder.complete()]:
        told += [Entry.of("resp_1", (3, e["sequence_number"]), e) for e in events]
        log.append(3, events)
        assert len(log.entries) == len(told)
        assert log.entries[-2:] == told[-2:]
    assert list(log.entries) == told
    assert [e.type for e in log.entries] == [e.type for e in told]
    start = data.draw(st.integers(0, len(told)))
    stop = data.draw(st.integers(start, len(told)))
    assert log.entries[start:stop] == told[start:stop]
    place = data.draw(st.integers(-len(told), len(told) - 1))
    assert log.entries[place] == told[place]
    with pytest.raises(IndexError):
        log.entries[len(told)]


#: Bytes after an event's number from and up to which it is kept deflated.
BORDERS = (kept_in._SMALL, kept_in._LARGE)
letters = st.sampled_from(
    ["a", "\u00e9", "\u20ac", "\U0001f600", '"', "\\", "\n", "\0"]
)


def an_event(number: int, size: int, letter: str, type: str) -> dict[str, Any]:
    """One of which `size` bytes or hardly less follow its number."""
    event = {"type": type, "sequence_number": number, "said": ""}
    begins = len(kept_in._event_prefix(type, number))
    left = size - (len(encode_event(event)) - begins)
    event["said"] = letter * (
        left // (len(encode_event({"": letter})) - len(b'{"":""}'))
    )
    event["said"] += "." * (size - (len(encode_event(event)) - begins))
    assert len(encode_event(event)) - begins == size
    return event


sizes = st.one_of(
    *(st.integers(border - 2, border + 2) for border in BORDERS),
    st.integers(128, 20_000),
)


@given(
    st.lists(
        st.tuples(
            sizes,
            letters,
            st.sampled_from(["response.created", "response.output_item.done"]),
        ),
        max_size=6,
    ),
    st.tuples(sizes, letters),
)
def test_an_event_of_any_size_comes_back_to_the_byte(events, last):
    """Deflated or not: the border is crossed both ways."""
    told = [an_event(number, *each) for number, each in enumerate(events)]
    told.append(an_event(len(told), *last, "response.completed"))
    log = TurnLog("resp_1")
    for event in told:
        log.append(1, [event])
    log.append(1, [said(len(told))])  # what came last is kept as it is
    assert [entry.data for entry in log.entries[:-1]] == [*map(encode_event, told)]
    kept = [kept_in._SMALL < size < kept_in._LARGE for size, *_ in [*events, last]]
    assert [each._deflated is not None for each in log.entries._segments] == kept


@pytest.mark.parametrize("half", [0xD83D, 0xDC00])
@pytest.mark.parametrize("size", [10, 1_000, 3_000, 17_000])
def test_halves_of_letters_are_mended_before_they_are_kept(size, half):
    log, builder = TurnLog("resp_1"), ResponseBuilder(id="resp_1", model="m")
    text = "ab" + (chr(half) + "a") * size
    events = [*builder.start(), *builder.feed([TextDelta(0, text)])]
    events += [*builder.complete(), said(0)]
    for event in events:
        log.append(1, [event])
    assert [entry.data for entry in log.entries] == [*map(encode_event, events)]
    assert output_text(log.entries[-2].event["response"]["output"]) == sanitize_text(
        text
    )


def test_a_long_answer_comes_back_to_the_byte_and_is_held_once():
    """Four events at its end hold all of its text."""
    dice, letters = random.Random(1), "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(dice.choices(letters, k=7)) for _ in range(1_000)]
    pieces = [" ".join(dice.choices(words, k=50)) for _ in range(2_000)]
    size = sum(map(len, pieces))
    builder, log = ResponseBuilder(id="resp_1", model="m"), TurnLog("resp_1")
    digest, number = hashlib.sha256(), 0
    gc.collect()
    tracemalloc.start()
    feeds = (partial(builder.feed, [TextDelta(0, piece)]) for piece in pieces)
    for build in chain([builder.start], feeds, [builder.complete]):
        events = build()
        log.append(1, events)
        number += len(events)
        for event in events:
            digest.update(encode_event(event))
    del builder, build, feeds, events, event
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 1.7 * size  # the text, and deflated what told it
    told, at = hashlib.sha256(), None
    while batch := entries_after(log.entries, at, MAX_ENTRIES):
        for entry in next(portions(batch)):
            told.update(entry.data)
            assert entry.size == len(entry.data)
            at = entry.log_position
    assert at == (1, number - 1)
    assert told.digest() == digest.digest()


def test_of_a_long_text_hardly_more_is_kept_than_the_text():
    log, builder = TurnLog("resp_1"), ResponseBuilder(id="resp_1", model="m")
    log.append(1, builder.start())
    gc.collect()
    tracemalloc.start()
    for _ in range(2_000):
        log.append(1, builder.feed([TextDelta(0, "a word and another ")]))
        builder._open[0].text = TextBuffer()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 2_000 * 40
    assert len(log.entries[1_000:1_500]) == 500


async def test_whoever_waits_is_woken():
    log = TurnLog("resp_1")
    waiting = [asyncio.ensure_future(log.wait_for_change()) for _ in range(3)]
    await asyncio.sleep(0)
    log.append(1, [])
    await asyncio.gather(*waiting)


def said(number):
    return {"type": "response.output_text.delta", "sequence_number": number}


class Reader:
    """A connection that takes what it is sent, or not, as it is told to."""

    def __init__(self, takes=None):
        self.read = []
        self.takes = takes  # None: always

    def write(self, data):
        if self.takes is not None and not next(self.takes, True):
            return False
        self.read.append(data)
        return True

    @property
    def way(self):
        return DirectSink(Entry.ws_frame, self.write)


async def listening(log, reader):
    task = asyncio.ensure_future(log.write_directly(reader.way))
    await asyncio.sleep(0)
    return task


async def test_who_listens_is_told_in_the_same_moment_and_all_the_same_bytes():
    log = TurnLog("resp_1")
    log.append(1, [said(0)])
    readers = [Reader(), Reader()]
    tasks = [await listening(log, reader) for reader in readers]
    log.append(1, [said(1)])
    log.append(1, [said(2), said(3)])
    _, *rest = [entry.ws_frame() for entry in log.entries]
    assert [b"".join(reader.read) for reader in readers] == [b"".join(rest)] * 2
    assert readers[0].read[0] is readers[1].read[0]
    assert not any(task.done() for task in tasks)
    log.wake()
    assert await asyncio.gather(*tasks) == [log.entries[-1]] * 2


async def test_the_end_is_not_told_to_who_listens_but_wakes_it():
    log, reader = TurnLog("resp_1"), Reader()
    log.append(1, [said(0)])
    task = await listening(log, reader)
    log.append(1, [{"type": "response.completed", "sequence_number": 1}])
    assert (await task, reader.read) == (None, [])


async def test_a_new_epoch_is_not_told_to_who_listens_but_wakes_it():
    log, reader = TurnLog("resp_1"), Reader()
    log.append(1, [said(0)])
    task = await listening(log, reader)
    log.append(2, [said(0)])
    assert (await task, reader.read) == (None, [])


async def test_who_takes_no_more_is_woken_and_the_others_are_told():
    log, full, free = TurnLog("resp_1"), Reader(iter([True, False])), Reader()
    log.append(1, [said(0)])
    refused, told = await listening(log, full), await listening(log, free)
    for number in (1, 2, 3):
        log.append(1, [said(number)])
    assert (await refused).sequence == 1
    assert (len(full.read), len(free.read), told.done()) == (1, 3, False)
    told.cancel()


async def test_who_is_gone_is_told_nothing_more():
    log, reader = TurnLog("resp_1"), Reader()
    task = await listening(log, reader)
    task.cancel()
    await asyncio.wait([task])
    log.append(1, [said(0)])
    assert reader.read == []


async def followed(batches, takes, pauses):
    """What a follower has read at the end, and all that was said."""
    no_rows = SimpleNamespace(read=None)
    engine, reader = Engine(MemoryLog(), database=no_rows), Reader(iter(takes))
    log = engine._log.open_publisher("resp_1", lambda: None)
    log.append(1, [said(0)])

    async def follow():
        async for entries in engine.subscribe("resp_1", None, reader.way):
            await asyncio.sleep(0)
            reader.read += [entry.ws_frame() for entry in entries]

    following = asyncio.ensure_future(follow())
    for batch, pause in zip(batches, pauses, strict=True):
        for _ in range(pause):
            await asyncio.sleep(0)
        log.append(1, [said(len(log.entries) + n) for n in range(batch)])
    log.append(1, [{"type": "response.completed", "sequence_number": sum(batches) + 1}])
    await following
    return b"".join(reader.read), b"".join(e.ws_frame() for e in log.entries)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=20),
    st.lists(st.booleans(), max_size=20),
)
def test_a_follower_is_told_all_once_whatever_its_connection_takes(said_when, takes):
    batches = [batch for batch, _ in said_when]
    pauses = [pause for _, pause in said_when]
    read, all_said = asyncio.run(followed(batches, takes, pauses))
    assert read == all_said


leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
values = leaves | st.lists(leaves) | st.dictionaries(st.text(), leaves)


@given(st.dictionaries(st.text(), values, min_size=1))
def test_what_is_kept_of_an_event_is_its_json(event):
    assert encode_event(event) == orjson.dumps(event)


def test_turns_that_begin_alike_keep_their_beginning_once():
    tools = [{"type": "function", "name": f"t{n}"} for n in range(100)]
    kept = []
    for number in (1, 2):
        id = f"resp_{number:032}"
        builder = ResponseBuilder(
            id=id, model="m", echo={"tools": tools}, created_at=1_790_000_000 + number
        )
        events = [*builder.start(), *builder.feed([TextDelta(0, "Well")])]
        log = TurnLog(id)
        log.append(1, events)
        log.append(1, builder.complete())
        assert [entry.event for entry in log.entries[: len(events)]] == events
        kept.append(log.entries._segments[:2])
    [first, second], others = kept[0], kept[1]
    assert first._rest is second._rest
    assert all(each._deflated is first._deflated for each in (second, *others))
    assert others[0]._rest != first._rest  # its id and its time


def test_portions_are_all_of_it_and_small_unless_one_event_is_large():
    events = [
        Entry("resp_1", (2, n), "t", b"x" * size)
        for n, size in enumerate(
            [10] * (2 * MAX_ENTRIES + 1) + [MAX_BYTES, 1, MAX_BYTES + 1, 1, 1]
        )
    ]
    found = list(portions(events))
    assert [entry for portion in found for entry in portion] == events
    for portion in found:
        size = sum(len(entry.data) for entry in portion)
        assert len(portion) == 1 or (len(portion) <= MAX_ENTRIES and size <= MAX_BYTES)


def test_a_reset_is_never_told_alone():
    """It has no place of its own: who was told it alone would be told it again."""
    large = Entry("resp_1", (2, 0), "t", b"x" * (MAX_BYTES + 1))
    again = reset_entry("resp_1", Position(1, 3), 0)
    assert list(portions([again, large])) == [[again, large]]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_who_asks_for_a_little_at_a_time_is_told_all(most):
    texts = [f"{n} " * 40 for n in range(50)]
    builder = ResponseBuilder(id="resp_1", model="m")
    log = TurnLog("resp_1")
    log.append(1, builder.start())
    for text in texts:
        log.append(1, builder.feed([TextDelta(0, text)]))
    log.append(1, builder.complete())
    told = []
    while rest := entries_after(
        log.entries, told[-1].log_position if told else None, most
    ):
        assert len(rest) <= most
        told += rest
    assert told == list(log.entries)


def a_large_turn(logs, name):
    """That is over and followed, and of which four events hold all."""
    log = logs.open_publisher(name, lambda: None)
    builder = ResponseBuilder(id=name, model="m")
    text = "x" * (MAX_RETAINED // 6)
    log.append(1, [*builder.start(), *builder.feed([TextDelta(0, text)])])
    log.append(1, builder.complete())
    return log


async def test_large_logs_of_turns_that_are_over_are_bounded_together():
    """Each is kept a while for those who read it; the rows tell the others."""
    logs = MemoryLog()
    names = ["resp_1", "resp_2", "resp_3"]
    for name in names:
        log = a_large_turn(logs, name)
        assert MAX_RETAINED / 2 < log.entries.size < MAX_RETAINED
        assert await logs.subscribe(name) is log
        logs.close(name)
    assert [logs.get(name) is None for name in names] == [True, True, False]
    assert not log.is_over


async def test_who_follows_a_large_log_that_is_let_go_of_goes_on_with_the_rows():
    logs = MemoryLog()
    first = a_large_turn(logs, "resp_1")
    await logs.subscribe("resp_1")
    logs.close("resp_1")
    waiting = asyncio.ensure_future(first.wait_for_change())
    await asyncio.sleep(0)
    a_large_turn(logs, "resp_2")
    logs.close("resp_2")
    await waiting
    assert (first.is_over, len(first.entries)) == (True, 0)


async def test_what_the_engine_does_again_and_again_outlasts_any_fault(caplog):
    """And of a database that is away it says one line."""
    engine = Engine(MemoryLog(), database=Database())
    faults = [OperationalError("database is locked"), KeyError("ours")]

    async def act():
        if not faults:
            engine._stopped.set()
            return
        raise faults.pop(0)

    await engine._every(0.001, act)
    away, ours = [record.getMessage() for record in caplog.records]
    assert away == "no database for the engine's act"
    assert ours.startswith("the engine's act failed: KeyError\n")
