"""Large answers of one process grow one after another when they are too long
together."""

from __future__ import annotations

import asyncio

from conversations.engine.runs.large_answer_limits import (
    MOST_OPEN,
    LargeAnswer,
    LargeAnswers,
)

THIRD = MOST_OPEN // 3


async def steps() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_only_the_longest_goes_on_until_the_others_fit():
    everyone = LargeAnswers()
    short, middle, longest = (LargeAnswer(everyone) for _ in range(3))
    await short.wait_for_room(THIRD)
    await middle.wait_for_room(THIRD + 1)  # there is room for both
    await longest.wait_for_room(2 * THIRD)  # not for all, but nothing is longer
    waiting = [
        asyncio.create_task(short.wait_for_room(THIRD)),
        asyncio.create_task(middle.wait_for_room(THIRD + 2)),
    ]
    await steps()
    assert not any(task.done() for task in waiting)
    await longest.wait_for_room(2 * THIRD + 1)
    longest.release()  # it has been written
    await asyncio.gather(*waiting)


async def test_an_answer_that_is_stopped_while_it_waits_makes_room():
    everyone = LargeAnswers()
    one, other, longest = (LargeAnswer(everyone) for _ in range(3))
    await one.wait_for_room(THIRD)
    await longest.wait_for_room(2 * THIRD - 1)
    stopped = asyncio.create_task(other.wait_for_room(THIRD))
    waiting = asyncio.create_task(one.wait_for_room(THIRD))
    await steps()
    assert not waiting.done()
    stopped.cancel()
    await asyncio.wait([stopped])
    other.release()  # as a run does at its end
    await waiting
