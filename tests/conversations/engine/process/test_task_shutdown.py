"""A cancellation that comes together with what was waited for must not get lost, as
`asyncio.wait_for` of Python 3.11 loses it, and redis-py with it."""

from __future__ import annotations

import asyncio

from redis.asyncio import Redis

from conversations.engine.process.task_shutdown import cancel_and_wait

TICKS = 12  # of the event loop, among which the unlucky one is


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same():
    swallowed = []

    async def stubborn() -> None:
        while len(swallowed) < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(True)
        await asyncio.Event().wait()

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await cancel_and_wait([task, None])
    assert task.cancelled()
    assert len(swallowed) == 2


async def test_a_task_that_talks_to_redis_can_be_cancelled_at_any_moment(
    redis_url: str,
):

    async def talk(client: Redis) -> None:
        await client.ping()
        await asyncio.Event().wait()

    async with Redis.from_url(redis_url, socket_timeout=3) as client:
        await client.ping()
        for ticks in range(TICKS):
            task = asyncio.create_task(talk(client))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await cancel_and_wait([task])
            assert task.cancelled()
