"""Queue of database writes that requests do not wait for, such as rows of model calls.

Up to `BATCH` writes within `DELAY` share one transaction, and as many rows of model
calls one statement. A crash loses queued writes; an orderly shutdown writes them. While
the database is unavailable, they are tried again each second for a minute. Whether it
has committed a write is unknown when its answer is lost, so rows of calls have ids by
which a repetition finds those that it has.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db import transaction

from conversations.engine.database.executor import Database, is_database_unavailable
from llm.models import ModelCall

logger = logging.getLogger(__name__)

DELAY = 0.1  # seconds
PAUSE = 1.0  # seconds, after a write for which the database was unavailable
#: Seconds of failures, after which what cannot be written is lost: it may itself be
#: their cause.
GIVE_UP_AFTER = 60.0
BATCH = 500  # writes, and as many rows of calls, in one transaction
MAX_WAITING = 10_000  # writes, and as many rows of calls, while it is unavailable
Write = Callable[[], Any]
MakeRow = Callable[[], ModelCall]


@dataclass(slots=True, eq=False)
class _QueuedCall:
    make_row: MakeRow
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    is_repeated: bool = False  # it may be stored already

    def row(self) -> ModelCall:
        row = self.make_row()
        row.write_id = self.id
        return row


class WriteBehindQueue:
    """Runs writes in the background, in order. Belongs to one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._waiting: list[Write] = []
        self._calls: list[_QueuedCall] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_closing = False
        self._failing_since: float | None = None  # time of the loop

    def add(self, write: Write) -> None:
        """`write` is called in a thread that may use the database: once, and again only
        if that is unavailable. It must do no harm if it was committed before."""
        self._waiting.append(write)
        self._schedule_flush()

    def add_call(self, make_row: MakeRow) -> None:
        """`make_row` is called in such a thread, and its row is saved once."""
        self._calls.append(_QueuedCall(make_row))
        self._schedule_flush()

    async def close(self) -> None:
        """Return once all queued writes are done, or have failed."""
        self._is_closing = True
        while self._writing or self._waiting or self._calls:
            self._flush()
            if self._writing:
                await self._writing

    def _schedule_flush(self, delay: float = DELAY) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(delay, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            return  # its end calls this again, so that the order remains
        writes, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
        calls, self._calls = self._calls[:BATCH], self._calls[BATCH:]
        if writes or calls:
            self._writing = asyncio.ensure_future(self._write(writes, calls))

    async def _write(self, writes: list[Write], calls: list[_QueuedCall]) -> None:
        delay = DELAY
        gives_up = self._is_closing or self._has_failed_long()
        try:
            await self._database.write(_run_all, writes, calls, gives_up=gives_up)
            self._failing_since = None
        except Exception as exc:
            if is_database_unavailable(exc) and not gives_up:
                delay = PAUSE
                if self._failing_since is None:
                    self._failing_since = asyncio.get_running_loop().time()
                self._put_back(writes, calls)
            else:
                _log_loss(len(writes) + len(calls))
        finally:
            self._writing = None
            if self._waiting or self._calls:
                self._schedule_flush(delay)

    def _has_failed_long(self) -> bool:
        since = self._failing_since
        if since is None:
            return False
        return asyncio.get_running_loop().time() - since >= GIVE_UP_AFTER

    def _put_back(self, writes: list[Write], calls: list[_QueuedCall]) -> None:
        """Queue these before newer ones. Beyond the limit the newest are lost."""
        self._waiting, self._calls = [*writes, *self._waiting], [*calls, *self._calls]
        lost = 0
        for queue in (self._waiting, self._calls):
            lost += max(0, len(queue) - MAX_WAITING)
            del queue[MAX_WAITING:]
        if lost:
            _log_loss(lost)
        # A flush before the pause would find the database as it is.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _log_loss(count: int) -> None:
    logger.exception("%d records of the gateway could not be stored", count)


def _run_all(
    writes: Sequence[Write], calls: Sequence[_QueuedCall], *, gives_up: bool
) -> None:
    """`gives_up`: what cannot be written now is lost. Otherwise all of it raises the
    error of an unavailable database, and may be run again."""
    every = list(writes)
    if calls:
        every.append(partial(_save_calls, calls, gives_up=gives_up))
    _run_writes(every, gives_up=gives_up)


def _save_calls(calls: Sequence[_QueuedCall], *, gives_up: bool) -> None:
    is_repeated = any(call.is_repeated for call in calls)
    for call in calls:
        call.is_repeated = True
    try:
        rows = [call.row() for call in calls]
        ModelCall.objects.record_all(rows, is_repeated=is_repeated)
    except Exception as exc:
        if len(calls) == 1 or (is_database_unavailable(exc) and not gives_up):
            raise
        # Any row may have caused the error, so each is made and written by itself. It
        # may be that the lost write of before was committed only now.
        each = [partial(_save_calls, [call], gives_up=gives_up) for call in calls]
        _run_writes(each, gives_up=gives_up)


@transaction.atomic
def _run_writes(writes: Sequence[Write], *, gives_up: bool) -> None:
    for write in writes:
        try:
            with transaction.atomic():
                write()
        except Exception as exc:
            if is_database_unavailable(exc) and not gives_up:
                raise
            # One failed write must not roll back the others.
            logger.exception("a record of the gateway could not be stored")
