"""Cancellation of tasks that talk to servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

CANCEL_INTERVAL = 0.5  # seconds between two cancellations


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any] | None]) -> None:
    """Cancel the tasks until all have ended.

    One cancellation is not always enough: Python 3.11's `wait_for`, which redis-py
    uses, swallows a cancellation that arrives together with the result.
    """
    known = {task for task in tasks if task is not None}
    pending = {task for task in known if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_INTERVAL)
    await asyncio.gather(*known, return_exceptions=True)  # retrieves their exceptions
