"""Background work that staff can interrupt, whatever it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from conversations.engine.database.executor import Database
from llm.db.outages import UNREACHABLE

CANCEL_INTERVAL = 0.3  # seconds between two reads of `is_cancelled`


class CancelledByStaff(Exception):
    """The work was interrupted."""


async def run_cancellable(
    work: Coroutine[object, object, None],
    database: Database,
    is_cancelled: Callable[[], bool],
) -> None:
    """Await `work`, and cancel it once `is_cancelled`, which is called in a database
    thread, returns True: staff may have changed the row in another process.

    Raises what `work` raises, and CancelledByStaff once it has ended by the cancel."""
    working = asyncio.create_task(work)
    try:
        while not (await asyncio.wait([working], timeout=CANCEL_INTERVAL))[0]:
            if await _read(database, is_cancelled) and working.cancel():
                break
    finally:
        working.cancel()
        await asyncio.wait([working])
    if working.cancelled():
        raise CancelledByStaff
    working.result()


async def _read(database: Database, is_cancelled: Callable[[], bool]) -> bool:
    try:
        return await database.read(is_cancelled)
    except UNREACHABLE:  # the work itself finds out whether it can go on
        return False
