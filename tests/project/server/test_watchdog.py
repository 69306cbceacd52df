from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from project.server.watchdog import PAUSE, Watchdog


class Timer:
    def __init__(self, at: float, act: Callable[[], None]) -> None:
        self.at, self.act = at, act
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """An event loop's clock and timers, without the waiting."""

    def __init__(self) -> None:
        self.now = self.cpu = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, act: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now + seconds, act))
        return self.timers[-1]

    def run(self, seconds: float, stall: float = 0.0, cpu: float = 0.0) -> None:
        """Nothing runs for `stall` seconds; then timers ring as they are due."""
        end, self.now, self.cpu = (
            self.now + seconds + stall,
            self.now + stall,
            self.cpu + cpu,
        )
        while due := [t for t in self.timers if t.at <= end and not t.is_cancelled]:
            timer = min(due, key=lambda each: each.at)
            self.timers.remove(timer)
            self.now = max(self.now, timer.at)
            timer.act()
        self.now = end


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "project.server.watchdog")
    return lambda: [record.getMessage() for record in caplog.records]


def watched() -> tuple[Loop, Watchdog]:
    loop: Any = Loop()
    return loop, Watchdog(loop, lambda: loop.cpu)


def test_a_loop_that_runs_is_not_spoken_of(lines: Any):
    loop, _ = watched()
    loop.run(10)
    loop.run(1, stall=0.09)
    assert lines() == []


def test_a_stall_is_logged_with_its_length(lines: Any):
    loop, _ = watched()
    loop.run(1)
    loop.run(1, stall=0.52, cpu=0.5)
    [line] = lines()
    assert line.startswith("the event loop was blocked for 5")
    assert "(500 ms of CPU)" in line
    assert "since the last line: 1," in line


def test_a_minute_has_one_line_and_the_next_counts_the_rest(lines: Any):
    loop, _ = watched()
    for stall in (0.2, 3.0, 0.3):
        loop.run(1, stall=stall)
    assert len(lines()) == 1
    loop.run(PAUSE)
    assert len(lines()) == 1
    loop.run(1, stall=0.2)
    assert len(lines()) == 2
    assert "since the last line: 3, the longest 3000 ms" in lines()[1]


def test_a_closed_one_is_silent(lines: Any):
    loop, watchdog = watched()
    watchdog.close()
    loop.run(1, stall=5)
    assert lines() == []
    assert not [timer for timer in loop.timers if not timer.is_cancelled]
