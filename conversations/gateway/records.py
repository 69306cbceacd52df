"""Rows of calls that are over, written behind the callers' backs.

What comes within `DELAY` is one transaction. A crash loses what is not written yet; an
orderly end writes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from django.db import transaction

from conversations.engine.database import Database

logger = logging.getLogger(__name__)

DELAY = 0.1  # seconds
Write = Callable[[], Any]


class Records:
    """Writes that nobody waits for, in their order. Belongs to one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[Write] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    def add(self, write: Write) -> None:
        """`write` is called once in a thread that may use the database."""
        self._waiting.append(write)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(DELAY, self._flush)

    async def close(self) -> None:
        """Returns once all that was added is written."""
        self._flush()
        await asyncio.gather(*self._writing)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            writes, self._waiting = self._waiting, []
            task = asyncio.ensure_future(self._write(writes))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write(self, writes: Sequence[Write]) -> None:
        try:
            await self._database.write(_all_of, writes)
        except Exception:
            logger.exception("%d records of the gateway could not be kept", len(writes))


@transaction.atomic
def _all_of(writes: Sequence[Write]) -> None:
    for write in writes:
        try:
            with transaction.atomic():
                write()
        except Exception:
            # One that cannot be written must not take the others with it.
            logger.exception("a record of the gateway could not be kept")
