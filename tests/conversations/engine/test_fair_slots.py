from __future__ import annotations

import asyncio
from collections.abc import Hashable

import pytest

from conversations.engine.process.fair_slots import FairSlots


async def waiting(slots: FairSlots, *owners: Hashable) -> list[asyncio.Task[bool]]:
    """Tasks that wait for a slot, in this order."""
    tasks = [asyncio.ensure_future(slots.acquire(owner)) for owner in owners]
    await asyncio.sleep(0)
    return tasks


async def served_order(slots: FairSlots, tasks: list[asyncio.Task[bool]]) -> list[int]:
    """The numbers of the tasks in the order in which released slots serve them."""
    order: list[int] = []
    for number, task in enumerate(tasks):
        task.add_done_callback(lambda _, number=number: order.append(number))
    for _ in tasks:
        slots.release()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return order


async def test_free_slots_are_taken_at_once():
    slots = FairSlots(2)
    assert await slots.acquire("ada")
    assert not slots.locked()
    assert await slots.acquire("ada")
    assert slots.locked()
    slots.release()
    assert not slots.locked()


async def test_owners_are_served_by_turns_and_each_in_its_order():
    slots = FairSlots(1)
    await slots.acquire()
    tasks = await waiting(slots, *["ada"] * 4, "bob", "bob", "eve")
    assert slots.waiting == 7
    assert await served_order(slots, tasks) == [0, 4, 6, 1, 5, 2, 3]
    assert slots.waiting == 0


async def test_a_released_slot_belongs_to_the_next_waiter():
    slots = FairSlots(1)
    await slots.acquire()
    (first,) = await waiting(slots, "ada")
    slots.release()
    assert slots.locked()  # it is the waiter's, which has not run yet
    assert await first


@pytest.mark.parametrize("is_served", [False, True])
async def test_a_cancelled_waiter_leaves_its_slot_to_the_next(is_served: bool):
    slots = FairSlots(1)
    await slots.acquire()
    first, second = await waiting(slots, "ada", "bob")
    if is_served:
        slots.release()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    if not is_served:
        slots.release()
    assert await second
    slots.release()
    assert not slots.locked()


async def test_a_wait_is_measured_from_its_beginning():
    slots = FairSlots(1)
    assert slots.longest_wait == 0
    await slots.acquire()
    tasks = await waiting(slots, "ada", "bob")
    before = slots.longest_wait
    assert 0 <= before <= slots.longest_wait
    await served_order(slots, tasks)
    assert slots.longest_wait == 0


async def test_the_expected_wait_counts_those_who_wait():
    """The first of thirty has waited for a moment, the thirtieth will for long."""
    now = 100.0
    slots = FairSlots(1, clock=lambda: now)
    await slots.acquire()
    tasks = await waiting(slots, *range(60))
    assert slots.expected_wait == 0  # nothing was served yet
    for _ in range(30):
        now += 0.1
        slots.release()
    assert slots.waiting == 30
    assert slots.expected_wait == pytest.approx(30 * 0.1, rel=0.1)
    assert slots.longest_wait == pytest.approx(3)
    for _ in range(31):
        slots.release()
    assert slots.expected_wait == 0
    now += 1_000  # without work; that says nothing about how fast it is served
    await slots.acquire()
    tasks += await waiting(slots, "ada")
    now += 0.1
    slots.release()
    tasks += await waiting(slots, *range(5))
    now += 0.5
    assert slots.expected_wait == pytest.approx(0.5)
    for task in tasks:
        task.cancel()


async def test_the_expected_wait_falls_again_though_one_waits_at_a_time():
    """Work that would wait is refused while the wait is long, so nobody waits behind
    another."""
    now = 100.0
    slots = FairSlots(1, clock=lambda: now)
    await slots.acquire()
    tasks = await waiting(slots, "ada", "bob")
    slots.release()
    now += 60  # the database stalls
    slots.release()
    for _ in range(50):
        tasks += await waiting(slots, "eve")
        now += 0.01
        slots.release()  # hers is the next slot
        slots.release()
        await slots.acquire()
    tasks += await waiting(slots, "eve")
    assert slots.expected_wait < 1
    for task in tasks:
        task.cancel()
