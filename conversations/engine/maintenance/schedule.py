"""Periodic jobs, each of which runs in one of the processes that run turns.

An interval of a job, a day for example, is claimed with a row before the job runs. The
row is in procrastinate's table of periodic jobs. In the embedded engine there is one
process and no claim, so a job runs at each start too. A job that fails waits for its
next interval: no job is urgent, and each also does what an earlier run has missed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import connection

from conversations.engine.database.executor import Database
from conversations.engine.process.engine_tasks import EngineTasks
from tools.execute import format_trace

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 60.0  # seconds between checks for due jobs
HOUR = 3600.0  # seconds
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    seconds: float  # from one run to the next
    #: Runs the job in steps, on a thread; each step yields counts of what it has done.
    steps: Callable[[], Iterator[Mapping[str, int]]]
    is_on: Callable[[], bool] = lambda: True
    is_slow: bool = False  # a step takes long before it writes
    is_frequent: bool = False  # its runs are not logged


def _clean_up() -> Iterator[Mapping[str, int]]:
    from conversations.engine.maintenance.retention import clean_up

    yield from clean_up()


def _sync_models() -> Iterator[Mapping[str, int]]:
    from conversations.engine.maintenance.model_sync import sync_models

    yield from sync_models()


def _index_messages() -> Iterator[Mapping[str, int]]:
    from conversations.search.index import index_pending

    yield from index_pending()


def _erase_temporary() -> Iterator[Mapping[str, int]]:
    from conversations.engine.maintenance.retention import erase_temporary

    yield from erase_temporary()


def _delete_files() -> Iterator[Mapping[str, int]]:
    from conversations.turns.file_deletion import delete_noted

    yield from delete_noted()


def _resume_imports() -> Iterator[Mapping[str, int]]:
    from conversations.transfer.imports import start_resuming

    yield {"threads": int(start_resuming())}


def _count_usage() -> Iterator[Mapping[str, int]]:
    from llm.pricing.usage_counting import count_all

    yield from count_all()


def _build_months() -> Iterator[Mapping[str, int]]:
    from conversations.engine.maintenance import tool_call_counts
    from llm.pricing import usage_months

    yield from usage_months.build_months()
    yield from tool_call_counts.build_months()


def _count_tool_calls() -> Iterator[Mapping[str, int]]:
    from conversations.engine.maintenance.tool_call_counts import count_calls

    yield from count_calls()


def _link_audit() -> Iterator[Mapping[str, int]]:
    from conversations.audit.chain import link_events

    yield {"events": link_events()}


def _check_audit() -> Iterator[Mapping[str, int]]:
    from conversations.audit.chain import log_head, prune

    if days := settings.AUDIT_RETENTION_DAYS:
        for count in prune(days):
            yield {"events removed": count}
    log_head()
    yield {}


def _delete_old_events() -> Iterator[Mapping[str, int]]:
    from conversations.engine.postgresql.tables import delete_old

    yield {"batches of events": delete_old()}


#: All periodic jobs.
JOBS = (
    Job(name="audit", seconds=DAY, steps=_check_audit),
    Job(
        name="link_audit",
        seconds=CHECK_INTERVAL,
        steps=_link_audit,
        is_frequent=True,
    ),
    Job(name="clean_up", seconds=DAY, steps=_clean_up),
    Job(
        name="delete_old_events",
        seconds=CHECK_INTERVAL,
        steps=_delete_old_events,
        is_on=lambda: settings.IS_SCALED and not settings.REDIS_URL,
        is_frequent=True,
    ),
    Job(
        name="sync_models",
        seconds=DAY,
        steps=_sync_models,
        is_on=lambda: settings.SYNC_MODELS,
        is_slow=True,
    ),
    Job(
        name="index_messages",
        seconds=CHECK_INTERVAL,
        steps=_index_messages,
        is_slow=True,
        is_frequent=True,
    ),
    Job(
        name="count_usage",
        seconds=CHECK_INTERVAL,
        steps=_count_usage,
        is_frequent=True,
    ),
    Job(name="build_usage_months", seconds=HOUR, steps=_build_months, is_frequent=True),
    Job(
        name="count_tool_calls",
        seconds=CHECK_INTERVAL,
        steps=_count_tool_calls,
        is_frequent=True,
    ),
    Job(
        name="erase_temporary",
        seconds=HOUR,
        steps=_erase_temporary,
        is_frequent=True,
    ),
    Job(
        name="delete_files",
        seconds=CHECK_INTERVAL,
        steps=_delete_files,
        is_slow=True,
        is_frequent=True,
    ),
    Job(
        name="resume_imports",
        seconds=CHECK_INTERVAL,
        steps=_resume_imports,
        is_slow=True,
        is_frequent=True,
    ),
)


class Schedule:
    """Begins the jobs that are due. A job that runs for hours, such as the first
    deletion of old rows, delays no other one: slow jobs run one step at a time in
    turn."""

    def __init__(
        self, tasks: EngineTasks, database: Database, jobs: Sequence[Job] = JOBS
    ) -> None:
        self._tasks = tasks
        self._database = database
        self._jobs = jobs
        self._claimed: dict[str, int] = {}  # the last interval claimed by any process
        self._running: set[str] = set()
        #: Locked for each step of a slow job, which takes one of the two reading
        #: threads. Waiting steps get the lock in order, so no job waits for another to
        #: end.
        self._slow = asyncio.Lock()

    async def run_due(self) -> None:
        """Begin the jobs that are due. Their tasks end with the engine's sweep."""
        for job in self._jobs:
            interval = int(time.time() // job.seconds)
            is_done = self._claimed.get(job.name) == interval
            if is_done or job.name in self._running or not job.is_on():
                continue
            is_ours = await self._database.write(claim, job.name, interval)
            self._claimed[job.name] = interval
            if is_ours:
                self._running.add(job.name)
                self._tasks.create(self._run_tracked(job), name="sweep")

    async def _run_tracked(self, job: Job) -> None:
        try:
            await self._run(job)
        finally:
            self._running.discard(job.name)

    async def _run(self, job: Job) -> None:
        done: Counter[str] = Counter()
        steps = iter(job.steps())
        try:
            # Turns can write between two steps.
            while (step := await self._step(job, steps)) is not None:
                done.update(step)
        except Exception as exc:
            logger.error("%s failed: %s", job.name, format_trace(exc))
        summary = ", ".join(f"{name}: {count}" for name, count in sorted(done.items()))
        if not job.is_frequent:
            logger.info("%s: %s", job.name, summary or "nothing to do")

    async def _step(
        self, job: Job, steps: Iterator[Mapping[str, int]]
    ) -> Mapping[str, int] | None:
        """What the next step has done; None if there is no more."""
        if not job.is_slow:
            return await self._database.write(_next, steps)
        # It would block the one writing thread for the writes of turns.
        async with self._slow:
            return await self._database.read(_next, steps)


def _next(steps: Iterator[Mapping[str, int]]) -> Mapping[str, int] | None:
    return next(steps, None)


def claim(name: str, interval: int) -> bool:
    """True for one process per interval."""
    if not settings.IS_SCALED:
        return True
    key: tuple[str, str, int] = (f"parley.{name}", "parley", interval)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO procrastinate_periodic_defers"
            " (task_name, periodic_id, defer_timestamp) VALUES (%s, %s, %s)"
            " ON CONFLICT DO NOTHING RETURNING id",
            key,
        )
        if cursor.fetchone() is None:
            return False
        cursor.execute(
            "DELETE FROM procrastinate_periodic_defers"
            " WHERE task_name = %s AND periodic_id = %s AND defer_timestamp < %s",
            key,
        )
    return True
