"""Periodic jobs; with tests.settings_scaled, as several processes share them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from django.conf import settings as configured

from conversations.engine.database.executor import Database
from conversations.engine.maintenance import schedule
from conversations.engine.maintenance.schedule import DAY, JOBS, Job, Schedule, claim

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
    mine = Schedule(database, [counting.job])
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
        await Schedule(database, [counting.job]).run_due()
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
    await Schedule(database, jobs).run_due()
    assert counting.runs == 1
    assert "fail failed" in caplog.text
    assert secret not in caplog.text


async def test_a_job_that_is_switched_off_is_not_run(database, clock):
    counting = Counting(is_on=lambda: False)
    await Schedule(database, [counting.job]).run_due()
    assert counting.runs == 0


async def test_the_real_jobs_run(database, clock, caplog, settings):
    settings.SYNC_MODELS = True  # no provider is configured
    with caplog.at_level(logging.INFO, schedule.__name__):
        await Schedule(database).run_due()
    messages = [
        record.getMessage()
        for record in caplog.records
        if record.name == schedule.__name__
    ]
    assert messages == [
        f"{job.name}: nothing to do" for job in JOBS if not job.is_frequent
    ]
