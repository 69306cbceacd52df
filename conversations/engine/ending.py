"""The end of tasks that talk to servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

AGAIN = 0.5  # seconds


async def end(tasks: Iterable[asyncio.Future[Any] | None]) -> None:
    """Cancel them until they are over.

    Once is not always enough: Python 3.11's `wait_for`, on which redis-py builds,
    swallows a cancellation that comes together with the answer.
    """
    known = {task for task in tasks if task is not None}
    pending = {task for task in known if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN)
    await asyncio.gather(*known, return_exceptions=True)  # nobody else looks at them
