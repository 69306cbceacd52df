"""One timer for all that is to happen in time."""

from __future__ import annotations

import asyncio
import math

import pytest

from llm.errors import ProviderTimeout
from llm.http.timers import DeadlineTimer, ResponseTimer, deadline_timer


class Loop:
    """An event loop's clock, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when, ring, *, context):
        timer = (when, ring)
        self.timers.append(timer)
        return Handle(self, timer)

    def move(self, to: float) -> None:
        while due := sorted(t for t in self.timers if t[0] <= to):
            self.now = due[0][0]
            self.timers.remove(due[0])
            due[0][1]()
        self.now = to


class Handle:
    def __init__(self, loop, timer) -> None:
        self.loop, self.timer = loop, timer

    def cancel(self) -> None:
        self.loop.timers.remove(self.timer)


class One:
    def __init__(self, until: float) -> None:
        self.until, self.rang = until, 0

    def on_timer(self) -> None:
        self.until = math.inf
        self.rang += 1


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_one_timer_serves_all_deadlines_in_order(loop):
    rings, each = DeadlineTimer(loop), [One(110), One(105), One(130)]
    for one in each:
        rings.add(one)
        assert len(loop.timers) == 1
    loop.move(104)
    assert [one.rang for one in each] == [0, 0, 0]
    loop.move(110)
    assert [one.rang for one in each] == [1, 1, 0]
    loop.move(500)
    assert [one.rang for one in each] == [1, 1, 1]
    assert loop.timers == []


def test_a_postponed_deadline_waits_and_a_cancelled_one_never_fires(loop):
    rings, later, cancelled = DeadlineTimer(loop), One(105), One(106)
    rings.add(later)
    rings.add(cancelled)
    later.until = 120
    rings.remove(cancelled)
    loop.move(119)
    assert (later.rang, cancelled.rang) == (0, 0)
    loop.move(120)
    assert (later.rang, cancelled.rang) == (1, 0)


def test_without_deadlines_there_is_no_timer(loop):
    rings, one = DeadlineTimer(loop), One(105)
    rings.add(one)
    rings.remove(one)
    assert loop.timers == []
    assert rings.fires_at == math.inf


async def test_a_wait_that_takes_too_long_fails_and_one_that_is_over_does_not():
    loop = asyncio.get_running_loop()
    clocks = [ResponseTimer(asyncio.get_running_loop(), streams=True) for _ in range(2)]
    futures = [loop.create_future() for _ in clocks]

    async def wait(clock: ResponseTimer, future: asyncio.Future[None]) -> None:
        with clock:
            assert clock.until >= deadline_timer().fires_at
            await future

    waits = [
        loop.create_task(wait(clock, future))
        for clock, future in zip(clocks, futures, strict=True)
    ]
    await asyncio.sleep(0)
    futures[1].set_result(None)
    await waits[1]
    for clock in clocks:
        clock.until = 0.0
    deadline_timer().fire()
    with pytest.raises(ProviderTimeout):
        await waits[0]
    for clock in clocks:
        assert clock.until == math.inf
        clock.close()
    assert deadline_timer().fires_at == math.inf
