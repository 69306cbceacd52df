"""Leases of the Idempotency-Keys whose requests an event loop answers.

A key whose lease expires belongs to a process that has died, for instance by SIGKILL:
the next request with it is answered anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from conversations.engine.database.executor import Database
from conversations.models.gateway.answered_request import LEASE, AnsweredRequest
from llm.db.outages import UNREACHABLE

logger = logging.getLogger(__name__)

INTERVAL = LEASE.total_seconds() / 4  # so that some renewals may fail


class KeyLeases:
    """`interval`: seconds between renewals."""

    def __init__(self, database: Database, interval: float = INTERVAL) -> None:
        self._database = database
        self._interval = interval
        self._pks: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    @contextmanager
    def renewing(self, row: AnsweredRequest) -> Iterator[None]:
        self._pks.add(row.pk)
        self._schedule()
        try:
            yield
        finally:
            self._pks.discard(row.pk)

    def close(self) -> None:
        self._pks.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        if self._timer is None and self._renewing is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._interval, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._pks:
            self._renewing = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        try:
            pks = list(self._pks)
            await self._database.write(AnsweredRequest.objects.renew, pks)
        except UNREACHABLE as exc:
            logger.warning("leases of %d Idempotency-Keys: %s", len(pks), type(exc))
        finally:
            self._renewing = None
            if self._pks:
                self._schedule()
