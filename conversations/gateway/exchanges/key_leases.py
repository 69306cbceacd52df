"""Leases of the Idempotency-Keys whose requests an event loop answers.

A key whose lease expires belongs to a process that has died, for instance by SIGKILL:
the next request with it is answered anew. A process that goes on but cannot renew, as
the database does not answer it, stops answering before that, so that no request runs
twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from conversations.engine.database.executor import Database
from conversations.models.gateway.answered_request import (
    LEASE,
    AnsweredRequest,
    ClaimLost,
)
from llm.db.outages import UNREACHABLE

logger = logging.getLogger(__name__)

INTERVAL = LEASE.total_seconds() / 4  # so that some renewals may fail
#: Seconds after the last renewal began, until which a request may be answered. The
#: database begins the lease later than that, by its own clock, so it ends later too.
#: Unless this machine is suspended: then its clock stands still, the database's does
#: not, and the request goes on until a renewal finds that another process has its key.
PATIENCE = LEASE.total_seconds() - 10


@dataclass(slots=True, eq=False)
class _Answering:
    """A request that is being answered, and the timer that stops it."""

    row: AnsweredRequest
    task: asyncio.Task[Any]
    timer: asyncio.TimerHandle | None = None

    def wait(self, patience: float) -> None:
        """Stop the request after this time from now on, unless called again."""
        if self.timer is not None:
            self.timer.cancel()
        loop = asyncio.get_running_loop()
        seconds = self.row.leased_at + patience - time.monotonic()
        self.timer = loop.call_later(max(0.0, seconds), self.stop)

    def stop(self) -> None:
        if not self.row.is_lost:
            self.row.is_lost = True
            self.task.cancel()


class KeyLeases:
    """`interval`: seconds between renewals."""

    def __init__(
        self,
        database: Database,
        interval: float = INTERVAL,
        patience: float = PATIENCE,
    ) -> None:
        self._database = database
        self._interval = interval
        self._patience = patience
        self._answering: dict[int, _Answering] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    @contextmanager
    def renewing(self, row: AnsweredRequest) -> Iterator[None]:
        """Renew the lease of `row`, whose request the current task answers. If that
        does not succeed in time, or another process has the key, the task's work is
        cancelled. Raises ClaimLost then."""
        task = asyncio.current_task()
        assert task is not None
        cancelled_before = task.cancelling()
        answering = self._answering[row.pk] = _Answering(row, task)
        answering.wait(self._patience)
        self._schedule()
        try:
            yield
        except asyncio.CancelledError as exc:
            if row.is_lost and task.uncancel() <= cancelled_before:
                raise ClaimLost from exc
            raise
        finally:
            if answering.timer is not None:
                answering.timer.cancel()
            del self._answering[row.pk]

    def close(self) -> None:
        for answering in self._answering.values():
            if answering.timer is not None:
                answering.timer.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if self._timer is None and self._renewing is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._interval, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._answering:
            self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        renewed = [*self._answering.values()]
        began_at = time.monotonic()
        try:
            claims = {each.row.pk: each.row.created_at for each in renewed}
            own = await self._database.write(AnsweredRequest.objects.renew, claims)
        except UNREACHABLE as exc:
            logger.warning("leases of %d Idempotency-Keys: %s", len(renewed), type(exc))
        else:
            for each in renewed:
                if self._answering.get(each.row.pk) is each:
                    self._note(each, began_at, is_own=each.row.pk in own)
        finally:
            self._renewing = None
            if self._answering:
                self._schedule()

    def _note(self, answering: _Answering, began_at: float, *, is_own: bool) -> None:
        if is_own:
            answering.row.leased_at = began_at
            answering.wait(self._patience)
        else:
            answering.stop()
