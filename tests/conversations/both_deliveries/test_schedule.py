"""Periodic jobs; with tests.settings_scaled, as several processes share them."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from django.conf import settings as configured

from conversations.engine.database.executor import Database
from conversations.engine.maintenance import schedule
from conversations.engine.maintenance.schedule import DAY, JOBS, Job, Schedule, claim
from conversations.engine.process.engine_tasks import EngineTasks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def database():
    database = Database()
    yield database
    await database.close()


@pytest.fixture
def clock(monkeypatch):
    """Seconds, to be set."""
    now = [10 * DAY]
    monkeypatch.setattr(schedule, "time", SimpleNamespace(time=lambda: now[0]))
    return now


class Process:
    """One that runs jobs."""

    def __init__(self, database: Database, jobs=JOBS) -> None:
        self.tasks = EngineTasks()
        self.schedule = Schedule(self.tasks, database, jobs)

    async def run_due(self) -> None:
        """To the end of the jobs."""
        await self.schedule.run_due()
        await asyncio.gather(*self.tasks.with_names("sweep"))


class Counting:
    """A job of three steps that counts its runs."""

    def __init__(self, **fields) -> None:
        self.runs = 0
        name = f"count {uuid.uuid4()}"  # claims outlive a test
        self.job = Job(name=name, seconds=DAY, steps=self._steps, **fields)

    def _steps(self) -> Iterator[dict[str, int]]:
        self.runs += 1
        for _ in range(3):
            yield {"rows": 2}


@pytest.mark.parametrize("is_slow", [True, False])
async def test_a_job_is_run_once_an_interval(database, clock, caplog, is_slow):
    counting = Counting(is_slow=is_slow)
    mine = Process(database, [counting.job])
    with caplog.at_level(logging.INFO, schedule.__name__):
        await mine.run_due()
        await mine.run_due()
    assert counting.runs == 1
    assert [record.getMessage() for record in caplog.records] == [
        f"{counting.job.name}: rows: 6"
    ]
    clock[0] += DAY
    await mine.run_due()
    assert counting.runs == 2


async def test_of_several_processes_one_runs_a_job(database, clock):
    counting = Counting()
    for _ in range(3):
        await Process(database, [counting.job]).run_due()
    # Embedded there is but one process, which may have been started again.
    assert counting.runs == (1 if configured.IS_SCALED else 3)


async def test_a_stale_claim_of_a_periodic_job_blocks_nothing(database, clock):
    assert await database.write(claim, "other", 1)
    assert await database.write(claim, "other", 2)
    if configured.IS_SCALED:
        assert not await database.write(claim, "other", 2)


async def test_a_job_that_fails_stops_no_other(database, clock, caplog):
    secret = "what a person said"

    def failing() -> Iterator[dict[str, int]]:
        yield {"rows": 1}
        raise ValueError(secret)

    counting = Counting()
    jobs = [Job(name="fail", seconds=DAY, steps=failing), counting.job]
    await Process(database, jobs).run_due()
    assert counting.runs == 1
    assert "fail failed" in caplog.text
    assert secret not in caplog.text


async def test_a_job_that_is_switched_off_is_not_run(database, clock):
    counting = Counting(is_on=lambda: False)
    await Process(database, [counting.job]).run_due()
    assert counting.runs == 0


async def test_the_real_jobs_run(database, clock, caplog, settings):
    settings.SYNC_MODELS = True  # no provider is configured
    with caplog.at_level(logging.INFO, schedule.__name__):
        await Process(database).run_due()
    messages = [
        record.getMessage()
        for record in caplog.records
        if record.name == schedule.__name__
    ]
    assert sorted(messages) == sorted(
        f"{job.name}: nothing to do" for job in JOBS if not job.is_frequent
    )


async def test_a_job_that_takes_long_holds_no_other_back(database, clock):
    """Nor is it begun again before it has ended, though it is due."""
    begun, end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def stay() -> Iterator[dict[str, int]]:
        loop.call_soon_threadsafe(begun.set)
        assert end.wait(30)
        yield {"rows": 1}

    counting = Counting()
    long = Counting(is_slow=True)
    long.job = Job(name=long.job.name, seconds=DAY, steps=stay, is_slow=True)
    process = Process(database, [long.job, counting.job])
    await process.schedule.run_due()
    await begun.wait()
    await _wait_until(lambda: len(process.tasks.with_names("sweep")) == 1)
    assert counting.runs == 1
    begun.clear()
    clock[0] += DAY
    await process.schedule.run_due()
    await _wait_until(lambda: len(process.tasks.with_names("sweep")) == 1)
    assert counting.runs == 2
    assert not begun.is_set()
    end.set()
    await asyncio.gather(*process.tasks.with_names("sweep"))


async def test_slow_jobs_take_turns_by_step(database, clock):
    """The first deletion from a bucket takes hours, and messages are to be found."""
    steps, may_end = list[str](), threading.Event()

    def delete() -> Iterator[dict[str, int]]:
        for _ in range(3):
            steps.append("delete")
            assert may_end.wait(30)
            yield {"files": 1}

    def index() -> Iterator[dict[str, int]]:
        steps.append("index")
        yield {"turns": 1}

    names = (f"{uuid.uuid4()}" for _ in range(2))
    jobs = [
        Job(name=next(names), seconds=DAY, steps=work, is_slow=True)
        for work in (delete, index)
    ]
    process = Process(database, jobs)
    await process.schedule.run_due()
    may_end.set()
    await asyncio.gather(*process.tasks.with_names("sweep"))
    assert steps == ["delete", "index", "delete", "delete"]


async def _wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)
