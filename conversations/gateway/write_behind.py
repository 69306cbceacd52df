"""Queue of database writes that requests do not wait for, such as rows of model calls.

All writes within `DELAY` share one transaction, and all rows of model calls one
statement. A crash loses queued writes; an orderly shutdown writes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import transaction

from conversations.engine.database.executor import Database
from llm.models import ModelCall

logger = logging.getLogger(__name__)

DELAY = 0.1  # seconds
Write = Callable[[], Any]
MakeRow = Callable[[], ModelCall]


class WriteBehindQueue:
    """Runs writes in the background, in order. Belongs to one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[Write] = []
        self._calls: list[MakeRow] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[None]] = set()

    def add(self, write: Write) -> None:
        """`write` is called once in a thread that may use the database."""
        self._waiting.append(write)
        self._schedule_flush()

    def add_call(self, make_row: MakeRow) -> None:
        """`make_row` is called once in such a thread, and its row is saved."""
        self._calls.append(make_row)
        self._schedule_flush()

    async def close(self) -> None:
        """Return once all queued writes are done."""
        self._flush()
        await asyncio.gather(*self._writing)

    def _schedule_flush(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(DELAY, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        writes, self._waiting = self._waiting, []
        calls, self._calls = self._calls, []
        if calls:
            writes.append(partial(_save_calls, calls))
        if writes:
            task = asyncio.ensure_future(self._write(writes))
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)

    async def _write(self, writes: Sequence[Write]) -> None:
        try:
            await self._database.write(_run_writes, writes)
        except Exception:
            logger.exception(
                "%d records of the gateway could not be stored", len(writes)
            )


def _save_calls(calls: Sequence[MakeRow]) -> None:
    try:
        ModelCall.objects.record_all([make_row() for make_row in calls])
    except Exception:
        if len(calls) == 1:
            raise
        # Any row may have caused the error, so each is made and written by itself.
        _run_writes([partial(_save_calls, [make_row]) for make_row in calls])


@transaction.atomic
def _run_writes(writes: Sequence[Write]) -> None:
    for write in writes:
        try:
            with transaction.atomic():
                write()
        except Exception:
            # One failed write must not roll back the others.
            logger.exception("a record of the gateway could not be stored")
