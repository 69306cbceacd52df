"""Work in the background that ends when staff cancel it, whatever it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from conversations.engine.database.executor import Database
from llm.db.outages import UNREACHABLE

CANCEL_INTERVAL = 0.3  # seconds between two looks whether the work is cancelled


class CancelledByStaff(Exception):
    """The work was interrupted."""


async def run_cancellable(
    work: Coroutine[object, object, None],
    database: Database,
    is_cancelled: Callable[[], bool],
) -> None:
    """Await `work`, and what it raises. Raises CancelledByStaff once it has ended
    because of `is_cancelled`, a synchronous look at a row: the page of another process
    may have changed it."""
    working = asyncio.create_task(work)
    try:
        while not (await asyncio.wait([working], timeout=CANCEL_INTERVAL))[0]:
            if await _look(database, is_cancelled) and working.cancel():
                break
    finally:
        working.cancel()
        await asyncio.wait([working])
    if working.cancelled():
        raise CancelledByStaff
    working.result()


async def _look(database: Database, is_cancelled: Callable[[], bool]) -> bool:
    try:
        return await database.read(is_cancelled)
    except UNREACHABLE:  # the work itself finds out whether it can go on
        return False
