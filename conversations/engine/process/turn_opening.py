"""Open a turn once its owner has a slot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from conversations.engine.process.fair_slots import FairSlots

if TYPE_CHECKING:
    from conversations.models import Turn

Open = Callable[[], Coroutine[Any, Any, "Turn"]]
CreateTask = Callable[[Coroutine[Any, Any, "Turn"]], "asyncio.Task[Turn]"]
#: Stops a turn whose caller was cancelled.
Abandon = Callable[["Turn"], None]


async def open_with_slot(
    slots: FairSlots,
    owner: Hashable,
    open_turn: Open,
    abandon: Abandon | None,
    create_task: CreateTask = asyncio.ensure_future,
) -> Turn:
    """Call `open_turn` in a task once `slots` serves the owner, and release the slot.

    If the caller is cancelled, the turn is opened all the same. With `abandon`, a
    caller that still waits leaves the queue instead, and `abandon` is called with a
    turn that was being opened.
    """
    if abandon is None:
        waiting = create_task(_wait_and_open(slots, owner, open_turn))
        return await asyncio.shield(waiting)
    await slots.acquire(owner)
    opening = create_task(_open(slots, open_turn))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(lambda done: _abandon(done, abandon))
        raise


async def _wait_and_open(slots: FairSlots, owner: Hashable, open_turn: Open) -> Turn:
    await slots.acquire(owner)
    return await _open(slots, open_turn)


async def _open(slots: FairSlots, open_turn: Open) -> Turn:
    try:
        return await open_turn()
    finally:
        slots.release()


def _abandon(done: asyncio.Future[Turn], abandon: Abandon) -> None:
    with suppress(asyncio.CancelledError):
        if done.exception() is None:
            abandon(done.result())
