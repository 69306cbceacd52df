"""Procrastinate jobs that wake a worker for a turn, written in the same transaction as
the change.

A job only says "look at this turn". The claim decides whether there is something to do
and which process does it, so a job may come twice, late, or not at all; procrastinate's
own locks and retries are not used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone
from procrastinate.contrib.django import app

from conversations.engine.process.task_shutdown import cancel_and_wait
from tools.execute import format_trace

logger = logging.getLogger(__name__)

QUEUE, TASK = "turns", "parley.run_turn"
RETENTION = timedelta(days=1)  # for which an unfinished job is kept
CONNECTIONS = 2  # of a worker, besides the listening one
BACKOFF = 5.0  # seconds; longest pause between two attempts

Admit = Callable[[str], Awaitable[None]]
_admit: Admit | None = None


@app.task(name=TASK, queue=QUEUE)
async def run_turn(turn_id: str) -> None:
    if _admit is not None:
        await _admit(turn_id)


def clean_up() -> None:
    """Delete the jobs that dead workers have left; a finished job is deleted at
    once."""
    before = timezone.now() - RETENTION
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM procrastinate_jobs AS job WHERE queue_name = %s AND NOT EXISTS"
            " (SELECT FROM procrastinate_events AS event WHERE event.job_id = job.id"
            " AND event.at > %s)",
            [QUEUE, before],
        )


def enqueue(turn_id: str) -> None:
    """Wake a worker for the turn after the caller's transaction is committed."""
    run_turn.defer(turn_id=turn_id)


class Jobs:
    """Executes this process's share of the jobs. `admit` returns when there is room for
    the next one."""

    def __init__(self, admit: Admit, *, concurrency: int) -> None:
        self._admit = admit
        self._concurrency = concurrency
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        global _admit
        _admit = self._admit
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        global _admit
        await cancel_and_wait([self._task])
        _admit = None

    async def _run(self) -> None:
        pause = 0.2
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._work()
            except Exception as exc:
                logger.warning(
                    "jobs cannot be read from PostgreSQL: %s", format_trace(exc)
                )
            if asyncio.get_running_loop().time() - began > BACKOFF:
                pause = 0.2
            await asyncio.sleep(pause)  # meanwhile the sweep finds the turns
            pause = min(2 * pause, BACKOFF)

    async def _work(self) -> None:
        from procrastinate import App, PsycopgConnector
        from procrastinate.contrib.django.utils import connector_params

        connector = PsycopgConnector(
            kwargs=connector_params(), min_size=1, max_size=CONNECTIONS
        )
        options: dict[str, Any] = {
            "queues": [QUEUE],
            "concurrency": self._concurrency,
            "install_signal_handlers": False,
            "delete_jobs": "always",
            "shutdown_graceful_timeout": 1.0,
            "fetch_job_polling_interval": 5.0,
        }
        # An app of its own: the Django app writes jobs in Django's transactions.
        worker = App(connector=connector)
        worker.tasks = app.tasks
        async with worker.open_async():
            await worker.run_worker_async(**options)
