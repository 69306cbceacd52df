"""Parts of a run: its first word, its snapshots, its writes."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from conversations.engine import turn_store
from conversations.engine.claim_store import Claim
from conversations.engine.database.executor import Database
from conversations.engine.runs import snapshots as taking
from conversations.engine.runs.run import Run
from conversations.engine.runs.snapshots import Snapshots
from conversations.engine.runs.state import RunState
from conversations.engine.runs.writes import RunWrites
from llm.errors import ModelNotAvailable
from llm.wire.deltas import TextDelta


def test_a_run_without_output_has_no_snapshot():
    # Its last event would have the number -1, which no row takes: the heartbeat of
    # all runs of the process would fail with it.
    state = RunState(Claim("resp_1", "conv_1", epoch=1))
    assert Snapshots(state).take() is None


@pytest.fixture
def clock():
    """The seconds that it reads, in a list of one."""
    return [1000.0]


@pytest.fixture
def growing_run(clock):
    """The snapshots of a run, and a function that adds so many characters to its
    answer."""
    state = RunState(Claim("resp_1", "conv_1", epoch=1))
    state.builder.start()

    def say(length):
        state.builder.feed([TextDelta("m", "x" * length)])

    return Snapshots(state, lambda: clock[0]), say


def test_a_subscriber_of_a_snapshot_still_gets_the_extensions_after_it():
    """It goes on in the log after the snapshot's number, and the snapshot holds only
    items."""
    state = RunState(Claim("resp_1", "conv_1", epoch=1))
    builder = state.builder
    events = [*builder.start(), *builder.extension("parley:step.started")]
    events += builder.feed([TextDelta("m", "Hi")])
    for type in ("parley:step.degraded", "parley:step.started"):
        events += builder.end_call()
        events += builder.extension(type)
        snapshot = Snapshots(state).take()
        assert snapshot is not None
        rest = [event["type"] for event in events[snapshot.last_sequence + 1 :]]
        assert "parley:step.degraded" in rest
        assert all(each.startswith("parley:") for each in rest)
        assert events[snapshot.last_sequence]["type"] == "response.output_item.done"


def test_a_short_answer_is_stored_at_each_heartbeat(growing_run, clock):
    snapshots, say = growing_run
    for _ in range(3):
        say(1000)
        assert snapshots.take() is not None
        clock[0] += 0.9


def test_a_long_answer_is_stored_less_often(growing_run, clock):
    snapshots, say = growing_run
    say(3 * taking.PACE)
    assert snapshots.take() is not None
    say(1000)
    clock[0] += 2.9
    assert snapshots.take() is None
    clock[0] += 0.2
    snapshot = snapshots.take()
    assert snapshot is not None
    assert len(snapshot.items[0]["content"][0]["text"]) == 3 * taking.PACE + 1000


def test_a_snapshot_that_would_delay_other_leases_is_skipped(growing_run, clock):
    snapshots, say = growing_run
    say(taking.LONGEST)
    snapshot = snapshots.take()
    assert snapshot is not None
    say(1)
    clock[0] += 60
    assert snapshots.take() is None


@pytest.mark.django_db(transaction=True)
async def test_a_write_that_nobody_awaits_is_left_out_after_a_drain():
    """Its error would replace the cancellation of the tool that gives a form up."""
    database, written = Database(), list[str]()
    writes = RunWrites(RunState(Claim("resp_1", "conv_1", epoch=1)), database)
    writes.write_later(written.append, "before")
    await database.close()
    writes.write_later(written.append, "after")
    assert written == ["before"]


@pytest.mark.django_db(transaction=True)
async def test_a_response_whose_end_cannot_be_stored_is_ended_once(monkeypatch, caplog):
    """Of a turn that cannot be loaded: a second start would reach its readers, and a
    second end is an error of its own in the log."""
    published = list[str]()

    def append(epoch, events, earlier_positions=None):
        published.extend(event["type"] for event in events)

    async def load():
        raise ModelNotAvailable("gone")

    def finish(*_):
        raise ValueError("a fault of ours")

    monkeypatch.setattr(turn_store, "finish", finish)
    log = SimpleNamespace(append=append)
    run = Run(Claim("resp_1", "conv_1", epoch=1), log, Database(), load())
    with caplog.at_level(logging.ERROR, "conversations.engine.runs.run"):
        await run.main()
    assert published == ["response.created", "response.in_progress"]
    (line,) = caplog.records
    assert "ValueError" in line.getMessage()
