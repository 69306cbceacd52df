"""A run between its claim and its first word."""

from __future__ import annotations

from typing import Any, cast

import pytest

from conversations.engine import run as runs
from conversations.engine.run import Run
from conversations.engine.turn_store import Claim
from llm.wire.deltas import TextDelta


def test_a_run_that_has_said_nothing_has_nothing_to_keep():
    # Its last event would have the number -1, which no row takes: the heartbeat of
    # all runs of the process would fail with it.
    nobody = cast(Any, None)
    claim = Claim(turn_id="resp_1", conversation_id="conv_1", epoch=1)
    run = Run(claim, nobody, nobody, nobody)
    assert run.snapshot() is None


@pytest.fixture
def clock(monkeypatch):
    """The seconds that the run reads, in a list of one."""
    now = [1000.0]
    monkeypatch.setattr(runs.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def told():
    """A run, and what makes it say so many characters more."""
    nobody = cast(Any, None)
    run = Run(Claim("resp_1", "conv_1", epoch=1), nobody, nobody, nobody)
    run._builder.start()

    def say(length):
        run._builder.feed([TextDelta("m", "x" * length)])

    return run, say


def test_a_short_answer_is_kept_at_each_beat(told, clock):
    run, say = told
    for _ in range(3):
        say(1000)
        assert run.snapshot() is not None
        clock[0] += 0.9


def test_a_long_answer_is_kept_at_the_pace_of_its_length(told, clock):
    run, say = told
    say(3 * runs.PACE)
    assert run.snapshot() is not None
    say(1000)
    clock[0] += 2.9
    assert run.snapshot() is None
    clock[0] += 0.2
    kept = run.snapshot()
    assert kept is not None
    assert len(kept.items[0]["content"][0]["text"]) == 3 * runs.PACE + 1000


def test_what_would_hold_up_the_leases_of_others_is_not_kept(told, clock):
    run, say = told
    say(runs.LONGEST)
    kept = run.snapshot()
    assert kept is not None
    say(1)
    clock[0] += 60
    assert run.snapshot() is None
