"""The event log over a real Redis: complete, ordered, closed to superseded runs."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress

import pytest
import redis as redis_client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations.engine.event_log import Position, StaleEpoch, encode_event
from conversations.engine.redis import large_events
from conversations.engine.redis import subscriber as mirrors
from conversations.engine.redis.connection import PipelinedConnection
from conversations.engine.redis.encoding import LARGE, large_event_key, stream_key
from conversations.engine.redis.erased_streams import erase_streams
from conversations.engine.redis.event_log import RedisLog
from conversations.engine.redis.pubsub import RedisBus
from conversations.engine.shared_log import run_log
from conversations.engine.shared_log.event_batches import encode_line, pack, unpack
from llm.wire.deltas import CloseDelta, TextDelta
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sanitize import sanitize_text
from tests.scaled import RedisProcess

FAILING = 6  # attempts to connect: at least one of each task of two processes


@pytest.fixture
def url(redis_url: str) -> str:
    return redis_url


class Process:
    """What of the engine has to do with Redis, as each process has it."""

    def __init__(self, url: str, *, deaf: bool = False) -> None:
        self.notifications: list[str] = []  # their kinds
        self.bus = RedisBus(url, lambda kind, ids: self.notifications.append(kind))
        self.log = RedisLog(self.bus)
        if deaf:  # to all that is published
            self.bus.subscribe = lambda turn_id, subscriber: None

    async def __aenter__(self) -> Process:
        self.bus.start()
        self.log.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.log.aclose()
        await self.bus.close()


@pytest.fixture
def turn() -> str:
    return f"resp_{uuid.uuid4().hex}"


def event_batches(turn: str, texts=("One", " and", " two.")):
    """Batches of events, the last of which ends the turn."""
    builder = ResponseBuilder(id=turn, model="m")
    yield builder.start()
    for text in texts:
        yield builder.feed([TextDelta(0, text)])
    yield builder.complete()


async def until(condition) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


async def heard(process: Process, turn: str, count: int):
    mirror = await process.log.subscribe(turn)
    await until(lambda: len(mirror.entries) >= count)
    return mirror


def test_a_batch_is_read_as_it_was_written():
    lines = [
        encode_line("response.created", Position(1, 1), b'{"a": "b c\\n"}'),
        encode_line("response.completed", None, b"{}"),
    ]
    batch = pack(7, lines)
    first, last = unpack("resp_1", Position(2, batch.first), batch.data)
    assert (first.type, first.earlier_position) == ("response.created", Position(1, 1))
    assert (first.log_position, first.data) == (Position(2, 7), b'{"a": "b c\\n"}')
    assert (last.log_position, last.earlier_position, last.is_last) == (
        Position(2, 8),
        None,
        True,
    )


async def test_a_subscriber_reads_a_stream_once(url, turn):
    other = f"resp_{uuid.uuid4().hex}"
    async with Process(url) as worker, Process(url) as web:
        for name in (other, turn):
            journal = worker.log.open_publisher(name, lambda: None)
            for batch in event_batches(name):
                journal.append(1, batch)
        own = await heard(worker, turn, 8)
        await until(lambda: own.ended)
        await heard(web, other, len(own.entries))  # it is connected
        executed, execute = [], web.bus.execute

        def count(commands):
            executed.extend(commands)
            return execute(commands)

        web.bus.execute = count
        await heard(web, turn, len(own.entries))
        assert [command[0] for command in executed] == ["XRANGE"]


@pytest.mark.parametrize("deaf", [False, True], ids=["hints", "no hints"])
async def test_another_process_reads_the_same_events(url, turn, deaf):
    async with Process(url) as worker, Process(url, deaf=deaf) as web:
        journal = worker.log.open_publisher(turn, lambda: None)
        mirror = await web.log.subscribe(turn)
        events = []
        for batch in event_batches(turn):
            journal.append(1, batch)
            events += batch
            await asyncio.sleep(0)
        await until(lambda: mirror.ended)
        assert [entry.event for entry in mirror.entries] == events
        assert [entry.log_position.sequence for entry in mirror.entries] == [
            *range(len(events))
        ]
        late = await heard(worker, turn, len(events))
        assert [entry.data for entry in late.entries] == [
            entry.data for entry in mirror.entries
        ]


async def test_a_superseded_run_can_publish_nothing_more(url, turn):
    async with Process(url) as zombie, Process(url) as other:
        fenced = asyncio.Event()
        first = zombie.log.open_publisher(turn, fenced.set)
        start, *rest = event_batches(turn)
        first.append(1, start)
        await heard(zombie, turn, len(start))
        second = other.log.open_publisher(turn, lambda: None)
        for batch in event_batches(turn, ["Another"]):
            second.append(2, batch)
        mirror = await other.log.subscribe(turn)
        await until(lambda: mirror.ended)
        with suppress(StaleEpoch):  # it may have found out by itself
            first.append(1, rest[0])
        async with asyncio.timeout(30):
            await fenced.wait()
        with pytest.raises(StaleEpoch):
            first.append(1, rest[1])
        assert {entry.log_position.epoch for entry in mirror.entries} == {2}
        assert await other.bus.redis.xlen(stream_key(turn)) >= 1
        oldest = await other.bus.redis.xrange(stream_key(turn), count=1)
        assert oldest[0][0] == b"2-0"


async def test_no_task_ends_with_an_error_that_is_not_of_redis(url, turn, monkeypatch):
    """Such as uvloop's RuntimeError of writing to a transport that is closed."""
    opened, open_pipe = 0, PipelinedConnection.open

    async def open_late(*args):
        nonlocal opened
        opened += 1
        if opened <= FAILING:
            raise RuntimeError("unable to perform operation; the transport is closed")
        return await open_pipe(*args)

    monkeypatch.setattr(PipelinedConnection, "open", open_late)
    async with Process(url) as worker, Process(url) as web:
        mirror = await web.log.subscribe(turn)
        journal = worker.log.open_publisher(turn, lambda: None)
        for batch in event_batches(turn):
            journal.append(1, batch)
        await until(lambda: opened > FAILING and mirror.ended)
        async with asyncio.timeout(30):
            while not web.notifications:
                await worker.bus.publish_notification("news")
                await asyncio.sleep(0)


async def test_the_log_of_all_turns_is_bounded_and_short_turns_continue(
    url, monkeypatch
):
    """An empty batch sends subscribers of a long turn to the rows."""
    monkeypatch.setattr(run_log, "MAX_TOTAL_SIZE", 50_000)
    monkeypatch.setattr(run_log, "SHORT_LOG_SIZE", 5_000)
    turns = [f"resp_{uuid.uuid4().hex}" for _ in range(3)]
    async with Process(url) as worker:
        *long, short = (worker.log.open_publisher(turn, lambda: None) for turn in turns)
        saying = [event_batches(turn, ["x" * 3_000] * 40) for turn in turns]
        for _ in range(40):
            for journal, batches in zip(long, saying, strict=False):
                journal.append(1, next(batches))
                await until(lambda j=journal: j.is_sent)
        assert sum(journal.size for journal in long) < 50_000 + 2 * 5_000
        for turn in turns[:2]:
            [(_, newest)] = await worker.bus.redis.xrevrange(stream_key(turn), count=1)
            assert newest[b"e"] == b""
        for batch in event_batches(turns[2]):
            short.append(1, batch)
        mirror = await worker.log.subscribe(turns[2])
        await until(lambda: mirror.ended)


async def test_a_large_event_is_stored_alone_and_delays_no_other(url, turn):
    large = "x" * (4 * LARGE)
    small = f"{turn}-small"
    async with Process(url) as worker, Process(url) as web:
        for name, texts in ((turn, [large]), (small, ["ok"])):
            journal = worker.log.open_publisher(name, lambda: None)
            for batch in event_batches(name, texts):
                journal.append(1, batch)
        mirrors = [await web.log.subscribe(name) for name in (turn, small)]
        await until(lambda: all(mirror.ended for mirror in mirrors))
        delta = next(e for e in mirrors[0].entries if e.type.endswith("text.delta"))
        assert delta.event["delta"] == large
        assert await web.bus.redis.exists(large_event_key(turn, delta.log_position))
        assert await web.bus.redis.ttl(large_event_key(turn, delta.log_position)) > 0


BORDERS = (128, LARGE)  # bytes: the head of a response; an event by itself
sizes = st.one_of(
    *(st.integers(border - 60, border + 60) for border in BORDERS),
    st.integers(0, 40_000),
)
letters = st.sampled_from(["a", "\u00e9", "\u20ac", "\U0001f600", '"\\\n\0', "\ud83d"])


async def both_ways(url, events, batch):
    """The log of the publishing process, of a subscribed one, and of a late one that
    read it from Redis."""
    turn = f"resp_{uuid.uuid4().hex}"
    async with Process(url) as worker, Process(url) as web, Process(url) as late:
        journal = worker.log.open_publisher(turn, lambda: None)
        mirror = await web.log.subscribe(turn)
        for start in range(0, len(events), batch):
            journal.append(1, events[start : start + batch])
            await asyncio.sleep(0)
        await until(lambda: mirror.ended)
        own, read = await worker.log.subscribe(turn), await late.log.subscribe(turn)
        await until(lambda: own.ended and read.ended)
        return [[entry.data for entry in log.entries] for log in (own, mirror, read)]


@given(st.lists(st.tuples(sizes, letters), max_size=6), st.integers(1, 9))
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_events_of_any_size_come_back_to_the_byte_on_every_process(url, texts, batch):
    """Small and by reference; whatever the letters, whole ones or halves."""
    builder = ResponseBuilder(id="resp_1", model="m")
    events = builder.start()
    for number, (size, letter) in enumerate(texts):
        text = letter * (size // len(sanitize_text(letter).encode()))
        events += builder.feed([TextDelta(number, text), CloseDelta(number)])
    events += builder.complete()
    encoded = [encode_event(event) for event in events]
    assert asyncio.run(both_ways(url, events, batch)) == [encoded] * 3


async def test_a_large_event_is_written_and_read_piece_by_piece(url, turn, monkeypatch):
    """So each answer of Redis is in time, however long the event."""
    for module in (large_events, mirrors):
        monkeypatch.setattr(module, "CHUNK_SIZE", LARGE)
    large = "x" * (4 * LARGE)
    async with Process(url) as worker, Process(url) as web:
        sizes = []
        for process in (worker, web):
            send = process.bus.redis.connection_pool.connection_class
            monkeypatch.setattr(send, "read_response", noting(send, sizes))
        journal = worker.log.open_publisher(turn, lambda: None)
        for batch in event_batches(turn, [large]):
            journal.append(1, batch)
        mirror = await web.log.subscribe(turn)
        await until(lambda: mirror.ended)
        delta = next(e for e in mirror.entries if e.type.endswith("text.delta"))
        assert delta.event["delta"] == large
        assert max(sizes) == LARGE


def noting(kind, sizes):
    """Notes how long the texts are that Redis answers with."""
    read = kind.read_response

    async def read_response(self, *args, **kwargs):
        answer = await read(self, *args, **kwargs)
        sizes.append(len(answer) if isinstance(answer, bytes) else 0)
        return answer

    return read_response


async def test_pieces_that_redis_forgot_are_written_again(url, turn, monkeypatch):
    monkeypatch.setattr(large_events, "CHUNK_SIZE", LARGE)
    large = "x" * (4 * LARGE)
    async with Process(url) as worker, Process(url) as web:
        pipeline, made = worker.bus.redis.pipeline, []

        def forgetting(**options):
            made.append(pipeline(**options))
            if len(made) == 3:  # between two pieces
                made[-1].delete(large_event_key(turn, Position(1, 4)))
            return made[-1]

        monkeypatch.setattr(worker.bus.redis, "pipeline", forgetting)
        journal = worker.log.open_publisher(turn, lambda: None)
        for batch in event_batches(turn, [large]):
            journal.append(1, batch)
        mirror = await web.log.subscribe(turn)
        await until(lambda: mirror.ended)
        delta = next(e for e in mirror.entries if e.type.endswith("text.delta"))
        assert delta.log_position == Position(1, 4)
        assert delta.event["delta"] == large


async def test_finished_logs_expire(url, turn):
    async with Process(url) as worker:
        journal = worker.log.open_publisher(turn, lambda: None)
        batches = list(event_batches(turn))
        journal.append(1, batches[0])
        await heard(worker, turn, 1)
        assert await worker.bus.redis.ttl(stream_key(turn)) > 3600
        for batch in batches[1:]:
            journal.append(1, batch)
        mirror = await worker.log.subscribe(turn)
        await until(lambda: mirror.ended)
        assert 0 < await worker.bus.redis.ttl(stream_key(turn)) <= 300


@pytest.mark.usefixtures("redis_url")
async def test_a_redis_that_lost_its_data_is_filled_again(tmp_path, turn):
    redis = RedisProcess(tmp_path).start()
    try:
        async with Process(redis.url) as worker, Process(redis.url) as web:
            journal = worker.log.open_publisher(turn, lambda: None)
            batches = list(event_batches(turn))
            for batch in batches[:3]:
                journal.append(1, batch)
            mirror = await heard(web, turn, 3)
            redis.kill()
            journal.append(1, batches[3])
            redis.start()
            journal.append(1, batches[4])
            await until(lambda: mirror.ended)
            with redis_client.Redis(port=redis.port) as plain:
                await until(lambda: plain.exists(stream_key(turn)))
            async with Process(redis.url) as other:
                late = await other.log.subscribe(turn)
                await until(lambda: late.ended)
            events = [event for batch in batches for event in batch]
            for each in (mirror, late):
                assert [entry.event for entry in each.entries] == events
    finally:
        redis.kill()


async def test_many_turns_share_few_round_trips(url):
    turns = [f"resp_{uuid.uuid4().hex}" for _ in range(50)]
    async with Process(url) as worker, Process(url) as web:
        mirrors = [await web.log.subscribe(name) for name in turns]
        streams = [
            (
                worker.log.open_publisher(name, lambda: None),
                event_batches(name, ["a"] * 40),
            )
            for name in turns
        ]
        while streams:
            for journal, batches in list(streams):
                with suppress(StopIteration):
                    journal.append(1, next(batches))
                    continue
                streams.remove((journal, batches))
            await asyncio.sleep(0)
        await until(lambda: all(mirror.ended for mirror in mirrors))
        texts = {
            "".join(
                e.event["delta"] for e in m.entries if e.type.endswith("text.delta")
            )
            for m in mirrors
        }
        assert texts == {"a" * 40}


async def test_an_erased_turn_leaves_nothing(url, turn):
    texts = ("One", "x" * (LARGE + 1))
    async with Process(url) as worker:
        journal = worker.log.open_publisher(turn, lambda: None)
        for events in event_batches(turn, texts):
            journal.append(1, events)
        mirror = await worker.log.subscribe(turn)
        await until(lambda: mirror.ended)
        with redis_client.Redis.from_url(url) as client:
            assert len(client.keys(f"*{turn}*")) > 1
            erase_streams(url, [turn, "resp_unknown"])
            assert client.keys(f"*{turn}*") == []


def test_an_erasure_goes_on_without_redis(caplog):
    erase_streams("redis://127.0.0.1:1/0", ["resp_1"])
    assert "stay in Redis until they expire" in caplog.text
