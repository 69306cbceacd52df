"""PostgreSQL publisher for the events of this process's runs.

One task writes what all runs have appended in one statement, which also announces their
turns, then waits for 40 ms. A crash of PostgreSQL empties the table.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from conversations.engine.postgresql import tables
from conversations.engine.postgresql.bus import (
    EVENTS,
    PostgresBus,
    build_event_payloads,
)
from conversations.engine.postgresql.connection import POSTGRES_ERRORS
from conversations.engine.process import crash_points
from conversations.engine.process.task_shutdown import cancel_and_wait
from conversations.engine.shared_log.event_batches import Batch
from conversations.engine.shared_log.publisher import (
    BACKOFF,
    FIRST_PAUSE,
    LogPublisher,
)
from conversations.engine.shared_log.run_log import RunLog, limit_memory
from conversations.throttled_warning import ThrottledWarning

logger = logging.getLogger(__name__)

PAUSE = 0.04  # seconds for which events are collected between two writes
MAX_WRITE_SIZE = 1024 * 1024  # bytes of one write, unless one batch is larger
DELETE_INTERVAL = 10.0  # seconds between deletions of finished turns


class _Row(NamedTuple):
    log: RunLog
    number: int  # of the batch
    batch: Batch


class PostgresPublisher(LogPublisher):
    def __init__(self, bus: PostgresBus) -> None:
        super().__init__()
        self._bus = bus
        self._tasks: list[asyncio.Task[None]] = []
        self._connected = 0
        self._expired: list[str] = []  # turns whose events are to be deleted
        self._warning = ThrottledWarning(
            logger, "events cannot be written to PostgreSQL: %s"
        )

    def start(self) -> None:
        self._tasks = [
            asyncio.ensure_future(self._run()),
            asyncio.ensure_future(self._delete_expired()),
        ]

    async def close(self) -> None:
        if not self._tasks:
            return
        await cancel_and_wait(self._tasks)
        try:
            await self._flush()
        except POSTGRES_ERRORS as exc:
            logger.warning(
                "the last events could not be written to PostgreSQL: %s",
                type(exc).__name__,
            )

    def end(self, turn_id: str) -> None:
        super().end(turn_id)
        if (log := self._logs.get(turn_id)) and log.ended:
            loop = asyncio.get_running_loop()
            loop.call_later(tables.FINISHED_EXPIRY, self._expired.append, turn_id)

    async def delete(self, turn_id: str) -> None:
        with suppress(*POSTGRES_ERRORS):  # `tables.delete_old` deletes them later
            await self._bus.statements.fetch(tables.DELETE, {"turns": [turn_id]})

    # Writing

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        with suppress(*POSTGRES_ERRORS):  # before the first event waits for it
            await self._bus.statements.connect()
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._flush()
                pause = FIRST_PAUSE
                await asyncio.sleep(PAUSE)
            except Exception as exc:  # else no run could publish again
                self._warning.log(type(exc).__name__)
                self._work.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, BACKOFF)

    async def _flush(self) -> None:
        await self._bus.statements.connect()
        if self._connected != self._bus.statements.connection_count:
            await self._verify()
        changed, self._changed = self._changed, set()
        try:
            for rows in self._split_into_writes(changed):
                await self._write(rows)
        except BaseException:
            self._changed |= changed
            raise
        self._forget_sent(changed)

    def _split_into_writes(self, changed: Iterable[RunLog]) -> Iterator[list[_Row]]:
        logs = [log for log in changed if not log.is_fenced]
        limit_memory(logs, self._logs.values())
        rows: list[_Row] = []
        size = 0
        for log in logs:
            log.freeze()
            for number in range(log.sent, len(log.batches)):
                rows.append(_Row(log, number, log.batches[number]))
                size += len(rows[-1].batch.data)
                if size > MAX_WRITE_SIZE:
                    yield rows
                    rows, size = [], 0
        if rows:
            yield rows

    async def _write(self, rows: Sequence[_Row]) -> None:
        crash_points.reach("outbox.send:before")
        turn_ids = [row.log.turn_id for row in rows]
        [(refused, _)] = await self._bus.statements.fetch(
            tables.WRITE,
            {
                "turns": turn_ids,
                "epochs": [row.log.epoch for row in rows],
                "firsts": [row.batch.first for row in rows],
                "data": [row.batch.data for row in rows],
                "channel": EVENTS,
                "payloads": [*build_event_payloads(dict.fromkeys(turn_ids))],
            },
        )
        crash_points.reach("outbox.send:after")
        for log, number, _ in rows:
            log.sent = number + 1
            if f"{log.turn_id} {log.epoch}" in refused and not log.is_fenced:
                log.fence()

    async def _verify(self) -> None:
        """After a connection was lost, write again what the table does not have: it is
        empty after a crash of PostgreSQL."""
        connected = self._bus.statements.connection_count
        logs = [log for log in self._logs.values() if log.sent and not log.is_fenced]
        if logs:
            runs = {
                "turns": [log.turn_id for log in logs],
                "epochs": [log.epoch for log in logs],
            }
            counts = dict(await self._bus.statements.fetch(tables.COUNT, runs))
            for log in logs:
                if counts.get(log.turn_id, 0) < log.sent:
                    log.sent = 0
                    self._on_change(log)
        self._connected = connected

    async def _delete_expired(self) -> None:
        while True:
            await asyncio.sleep(DELETE_INTERVAL)
            turn_ids, self._expired[:] = [*self._expired], []
            if turn_ids:
                with suppress(
                    *POSTGRES_ERRORS
                ):  # `tables.delete_old` deletes them later
                    await self._bus.statements.fetch(tables.DELETE, {"turns": turn_ids})
