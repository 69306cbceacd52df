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
from conversations.engine.packed_events import LARGE_EVENT
from conversations.engine.process.engine_tasks import EngineTasks
from llm.wire import websocket_frame
from llm.wire.deltas import CloseDelta, ReasoningDelta, TextDelta, ToolCallDelta
from llm.wire.items import output_text
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sanitize import sanitize_text


def log_of(epoch=1, items=("One.", "Two."), log=None, seen=None):
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
def test_a_malformed_position_is_refused(text):
    with pytest.raises(ValueError, match=r"position"):
        Position.parse(text)


def test_a_subscriber_receives_what_it_has_not_received():
    log, _ = log_of()
    assert log.entries
    for entry in log.entries:
        rest = entries_after(log.entries, entry.log_position)
        assert rest == log.entries[entry.log_position.sequence + 1 :]


def test_a_follower_from_an_earlier_epoch_drops_what_was_not_committed():
    _, builder = log_of()
    first_done = Position(1, builder.done_at[0])
    log, _ = log_of(epoch=2, seen={0: first_done})
    after = Position(1, first_done.sequence + 3)  # in the second message
    reset, *rest = entries_after(log.entries, after)
    assert reset.event["type"] == "parley:step.reset"
    assert reset.event["output_index"] == 1
    assert reset.position == str(after)
    assert {e.event.get("output_index", 1) for e in rest} == {1}
    assert rest[-1].is_last


def restored_log(builder, epoch):
    """The log of a later epoch, which restores the items of `builder`'s answer, all of
    them of epoch 1, and writes a last one."""
    again = ResponseBuilder(id="resp_1", model="m")
    items = builder.response()["output"]
    earlier = {n: Position(1, at) for n, at in enumerate(builder.done_at)}
    log = TurnLog("resp_1")
    log.append(epoch, [*again.start(), *again.restore(items, None)], earlier)
    log.append(epoch, [*again.feed([TextDelta(0, "New.")]), *again.complete()], {})
    return log


def received_texts(entries):
    """By output index, as a client puts them together."""
    texts = {}
    for entry in entries:
        event = entry.event
        if event["type"] == "parley:step.reset":
            texts = {n: t for n, t in texts.items() if n < event["output_index"]}
        if event["type"] == "response.output_text.delta":
            index = event["output_index"]
            texts[index] = texts.get(index, "") + event["delta"]
    return texts


@pytest.mark.parametrize("in_first", [None, 0, 5, 9, 12])
def test_a_subscriber_that_left_in_the_restored_items_misses_none(in_first):
    """Restored in two epochs, of the first of which it has received any part."""
    first, builder = log_of(items=("One.", "Two.", "Three."))
    second, third = restored_log(builder, 2), restored_log(builder, 3)
    before = [] if in_first is None else list(first.entries[: in_first + 1])
    at_first = before[-1].log_position if before else None
    joined = entries_after(second.entries, at_first)
    for count in range(1, len(joined)):
        received = [*before, *joined[:count]]
        rest = entries_after(third.entries, received[-1].log_position)
        texts = received_texts([*received, *rest])
        assert texts == {0: "One.", 1: "Two.", 2: "Three.", 3: "New."}


def test_a_superseded_run_can_append_nothing_more():
    log, _ = log_of(epoch=2)
    with pytest.raises(StaleEpoch):
        log.append(1, [])


def test_an_entry_is_the_event_with_its_place():
    log, _ = log_of()
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
def test_events_are_stored_to_the_byte(batches, data):
    log, builder = TurnLog("resp_1"), Unmerged(id="resp_1", model="m")
    stored = []
    for events in [builder.start(), *map(builder.feed, batches), builder.complete()]:
        stored += [Entry.of("resp_1", (3, e["sequence_number"]), e) for e in events]
        log.append(3, events)
        assert len(log.entries) == len(stored)
        assert log.entries[-2:] == stored[-2:]
    assert list(log.entries) == stored
    assert [e.type for e in log.entries] == [e.type for e in stored]
    start = data.draw(st.integers(0, len(stored)))
    stop = data.draw(st.integers(start, len(stored)))
    assert log.entries[start:stop] == stored[start:stop]
    index = data.draw(st.integers(-len(stored), len(stored) - 1))
    assert log.entries[index] == stored[index]
    with pytest.raises(IndexError):
        log.entries[len(stored)]


#: Bytes: where the head of a response ends, and above which an event is not encoded.
BORDERS = (128, LARGE_EVENT)
letters = st.sampled_from(
    ["a", "\u00e9", "\u20ac", "\U0001f600", '"', "\\", "\n", "\0"]
)


def an_event(number: int, size: int, letter: str, type: str) -> dict[str, Any]:
    """One of which `size` bytes or hardly less follow its number."""
    event = {"type": type, "sequence_number": number, "said": ""}
    begins = len(f'{{"type":"{type}","sequence_number":{number}')
    left = size - (len(encode_event(event)) - begins)
    event["said"] = letter * (
        left // (len(encode_event({"": letter})) - len(b'{"":""}'))
    )
    event["said"] += "." * (size - (len(encode_event(event)) - begins))
    assert len(encode_event(event)) - begins == size
    return event


sizes = st.one_of(
    *(st.integers(border - 2, border + 2) for border in BORDERS),
    st.integers(16, 20_000),
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
    decoded = [an_event(number, *each) for number, each in enumerate(events)]
    decoded.append(an_event(len(decoded), *last, "response.completed"))
    log = TurnLog("resp_1")
    for event in decoded:
        log.append(1, [event])
    log.append(1, [text_delta(len(decoded))])  # the last entries are stored unpacked
    assert [entry.data for entry in log.entries[:-1]] == [*map(encode_event, decoded)]


@pytest.mark.parametrize("half", [0xD83D, 0xDC00])
@pytest.mark.parametrize("size", [10, 1_000, 3_000, 17_000])
def test_split_surrogates_are_replaced_before_they_are_stored(size, half):
    log, builder = TurnLog("resp_1"), ResponseBuilder(id="resp_1", model="m")
    text = "ab" + (chr(half) + "a") * size
    events = [*builder.start(), *builder.feed([TextDelta(0, text)])]
    events += [*builder.complete(), text_delta(0)]
    for event in events:
        log.append(1, [event])
    assert [entry.data for entry in log.entries] == [*map(encode_event, events)]
    assert output_text(log.entries[-2].event["response"]["output"]) == sanitize_text(
        text
    )


@pytest.mark.slow
@pytest.mark.smoke
def test_a_long_answer_comes_back_to_the_byte_and_is_stored_once():
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
    assert grown < 2.3 * size  # the text, and its deltas
    sha256, at = hashlib.sha256(), None
    while batch := entries_after(log.entries, at, MAX_ENTRIES):
        for entry in next(portions(batch)):
            sha256.update(entry.data)
            assert entry.size == len(entry.data)
            at = entry.log_position
    assert at == (1, number - 1)
    assert sha256.digest() == digest.digest()


def test_a_long_text_costs_little_more_than_its_size():
    log, builder = TurnLog("resp_1"), ResponseBuilder(id="resp_1", model="m")
    log.append(1, [*builder.start(), *builder.feed([TextDelta(0, "It begins. ")])])
    (delta,) = builder.feed([TextDelta(0, "a word and another ")])
    first = delta["sequence_number"]
    gc.collect()
    tracemalloc.start()
    for number in range(first, first + 2_000):
        log.append(1, [{**delta, "sequence_number": number}])
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 2_000 * 40
    assert len(log.entries[1_000:1_500]) == 500


async def test_waiting_subscribers_are_woken():
    log = TurnLog("resp_1")
    waiting = [asyncio.ensure_future(log.wait_for_change()) for _ in range(3)]
    await asyncio.sleep(0)
    log.append(1, [])
    await asyncio.gather(*waiting)


def text_delta(number):
    return {"type": "response.output_text.delta", "sequence_number": number}


class Reader:
    """A connection that accepts writes, or not, as the test sets."""

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


async def test_listeners_receive_the_same_bytes_at_once():
    log = TurnLog("resp_1")
    log.append(1, [text_delta(0)])
    readers = [Reader(), Reader()]
    tasks = [await listening(log, reader) for reader in readers]
    log.append(1, [text_delta(1)])
    log.append(1, [text_delta(2), text_delta(3)])
    _, *rest = [entry.ws_frame() for entry in log.entries]
    assert [b"".join(reader.read) for reader in readers] == [b"".join(rest)] * 2
    assert readers[0].read[0] is readers[1].read[0]
    assert not any(task.done() for task in tasks)
    log.wake()
    assert await asyncio.gather(*tasks) == [log.entries[-1]] * 2


async def test_the_end_wakes_a_listener_without_being_sent():
    log, reader = TurnLog("resp_1"), Reader()
    log.append(1, [text_delta(0)])
    task = await listening(log, reader)
    log.append(1, [{"type": "response.completed", "sequence_number": 1}])
    assert (await task, reader.read) == (None, [])


async def test_a_new_epoch_wakes_a_listener_without_being_sent():
    log, reader = TurnLog("resp_1"), Reader()
    log.append(1, [text_delta(0)])
    task = await listening(log, reader)
    log.append(2, [text_delta(0)])
    assert (await task, reader.read) == (None, [])


async def test_a_full_listener_is_woken_and_the_others_are_served():
    log, full, free = TurnLog("resp_1"), Reader(iter([True, False])), Reader()
    log.append(1, [text_delta(0)])
    refused, open_listener = await listening(log, full), await listening(log, free)
    for number in (1, 2, 3):
        log.append(1, [text_delta(number)])
    assert (await refused).sequence == 1
    assert (len(full.read), len(free.read), open_listener.done()) == (1, 3, False)
    open_listener.cancel()


async def test_a_removed_listener_receives_nothing_more():
    log, reader = TurnLog("resp_1"), Reader()
    task = await listening(log, reader)
    task.cancel()
    await asyncio.wait([task])
    log.append(1, [text_delta(0)])
    assert reader.read == []


async def followed(batches, takes, pauses):
    """What a subscriber has read at the end, and all that was published."""
    no_rows = SimpleNamespace(read=None)
    engine, reader = Engine(MemoryLog(), database=no_rows), Reader(iter(takes))
    log = engine.log.open_publisher("resp_1", lambda: None)
    log.append(1, [text_delta(0)])

    async def follow():
        async for entries in engine.subscribe("resp_1", None, reader.way):
            await asyncio.sleep(0)
            reader.read += [entry.ws_frame() for entry in entries]

    following = asyncio.ensure_future(follow())
    for batch, pause in zip(batches, pauses, strict=True):
        for _ in range(pause):
            await asyncio.sleep(0)
        log.append(1, [text_delta(len(log.entries) + n) for n in range(batch)])
    log.append(1, [{"type": "response.completed", "sequence_number": sum(batches) + 1}])
    await following
    return b"".join(reader.read), b"".join(e.ws_frame() for e in log.entries)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=20),
    st.lists(st.booleans(), max_size=20),
)
def test_a_subscriber_receives_everything_once_whatever_its_connection_accepts(
    said_when, takes
):
    batches = [batch for batch, _ in said_when]
    pauses = [pause for _, pause in said_when]
    read, all_said = asyncio.run(followed(batches, takes, pauses))
    assert read == all_said


leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
values = leaves | st.lists(leaves) | st.dictionaries(st.text(), leaves)


@given(st.dictionaries(st.text(), values, min_size=1))
def test_an_event_is_stored_as_its_json(event):
    assert encode_event(event) == orjson.dumps(event)


@pytest.mark.slow
@pytest.mark.smoke
def test_turns_with_the_same_beginning_store_it_once():
    tools = [{"type": "function", "name": f"t{n}"} for n in range(2_000)]

    def begin(number: int) -> TurnLog:
        id = f"resp_{number:032}"
        builder = ResponseBuilder(
            id=id, model="m", echo={"tools": tools}, created_at=1_790_000_000 + number
        )
        log, events = TurnLog(id), builder.start()
        log.append(1, events)
        log.append(1, builder.feed([TextDelta(0, "Well")]))
        assert [entry.event for entry in log.entries[: len(events)]] == events
        return log

    begin(0)
    gc.collect()
    tracemalloc.start()
    logs = [begin(number) for number in range(1, 21)]
    gc.collect()
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < len(orjson.dumps(tools)) < len(logs[0].entries[0].data)


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


def test_a_reset_is_never_delivered_alone():
    """It has no position of its own: a subscriber that received it alone would receive
    it again."""
    large = Entry("resp_1", (2, 0), "t", b"x" * (MAX_BYTES + 1))
    again = reset_entry("resp_1", Position(1, 3), 0)
    assert list(portions([again, large])) == [[again, large]]


@pytest.mark.parametrize("most", [1, 2, 7])
def test_a_subscriber_with_small_batches_receives_everything(most):
    texts = [f"{n} " * 40 for n in range(50)]
    builder = ResponseBuilder(id="resp_1", model="m")
    log = TurnLog("resp_1")
    log.append(1, builder.start())
    for text in texts:
        log.append(1, builder.feed([TextDelta(0, text)]))
    log.append(1, builder.complete())
    received = []
    while rest := entries_after(
        log.entries, received[-1].log_position if received else None, most
    ):
        assert len(rest) <= most
        received += rest
    assert received == list(log.entries)


def a_large_turn(logs, name):
    """That is over and followed, and of which four events hold all."""
    log = logs.open_publisher(name, lambda: None)
    builder = ResponseBuilder(id=name, model="m")
    text = "x" * (MAX_RETAINED // 6)
    log.append(1, [*builder.start(), *builder.feed([TextDelta(0, text)])])
    log.append(1, builder.complete())
    return log


async def test_large_logs_of_turns_that_are_over_are_bounded_together():
    """Each is retained for a while for its readers; others read from rows."""
    logs = MemoryLog()
    names = ["resp_1", "resp_2", "resp_3"]
    for name in names:
        log = a_large_turn(logs, name)
        assert MAX_RETAINED / 2 < log.entries.size < MAX_RETAINED
        assert await logs.subscribe(name) is log
        logs.close(name)
    assert [logs.get(name) is None for name in names] == [True, True, False]
    assert not log.is_over


async def test_a_subscriber_of_a_discarded_log_continues_from_rows():
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


async def test_a_repeated_engine_task_survives_any_error(caplog):
    """And an unreachable database is logged in one line."""
    tasks = EngineTasks()
    faults = [OperationalError("database is locked"), KeyError("ours")]

    async def act():
        if not faults:
            tasks.stop()
            return
        raise faults.pop(0)

    await tasks.every(0.001, act)
    away, ours = [record.getMessage() for record in caplog.records]
    assert away == "no database for the engine's act"
    assert ours.startswith("the engine's act failed: KeyError\n")
