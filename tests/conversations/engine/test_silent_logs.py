"""Rows serve subscribers only where the event log itself does not: not because this
process was late to read it."""

from __future__ import annotations

import asyncio

import pytest

from conversations.engine.event_log import Position
from conversations.engine.shared_log import silent_logs
from conversations.engine.shared_log.run_log import RunLog
from conversations.engine.shared_log.silent_logs import MAX_LOOKS, SilentLogs
from conversations.engine.shared_log.subscriber import LogSubscriber, StoredBatch
from conversations.engine.shared_log.turns_from_rows import StoredTurns
from tests.conversations.engine.test_database_fallback import EVENTS, STANDINGS

TURN = "resp_1"
KNOWN = 4  # events that this process has read before it stands still


class Storage(LogSubscriber):
    """Reads batches of one event each from a list, once `may_read` is set."""

    def __init__(self) -> None:
        super().__init__("the test")
        self.events = EVENTS[:KNOWN]
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.is_broken = False
        self.read_count = 0

    async def _read(self, logs):
        await self.may_read.wait()
        self.read_count += 1
        if self.is_broken:
            raise OSError
        for log in logs:
            self._apply(log, batches_after(self.events, log.last_position))


def batches_after(events, last):
    run = RunLog(TURN, lambda log: None, lambda: None)
    for event in events:
        run.append(1, [event])
        run.freeze()
    stored = [
        StoredBatch(Position(1, batch.first), batch.data) for batch in run.batches
    ]
    return [batch for batch in stored if batch.start > last]


class Rows:
    """A turn's rows, which contain all of its events, or say that it is over."""

    def __init__(self) -> None:
        self.is_over = False

    async def load(self, positions, questions):
        if self.is_over:
            return StoredTurns([*positions])
        return StoredTurns([], dict.fromkeys(positions, STANDINGS[-1]))


@pytest.fixture
def rows():
    return Rows()


@pytest.fixture
async def storage(monkeypatch):
    monkeypatch.setattr(silent_logs, "POLL_INTERVAL", 0.0)  # every log is silent
    storage = Storage()
    storage.start()
    yield storage
    storage.may_read.set()
    await storage.close()


async def reads_once_more(storage):
    before = storage.read_count
    async with asyncio.timeout(30):
        while storage.read_count == before:
            await asyncio.sleep(0)


def positions(log):
    served = [*log.entries, *(entry for batch in log.fallback for entry in batch)]
    return [entry.log_position.sequence for entry in served]


@pytest.mark.parametrize("is_over", [False, True], ids=["running", "over"])
async def test_events_that_this_process_has_not_read_yet_come_from_the_log(
    storage, rows, is_over
):
    """It stood still, and sees the rows before the events that came meanwhile."""
    log = await storage.subscribe(TURN)
    storage.may_read.clear()
    storage.events, rows.is_over = EVENTS, is_over
    silent = SilentLogs(storage, rows.load)
    await silent.poll()
    await silent.poll()
    assert positions(log) == [*range(KNOWN)]
    assert not log.is_over
    storage.may_read.set()
    await reads_once_more(storage)
    assert positions(log) == [*range(len(EVENTS))]
    assert not log.fallback
    assert not log.is_over


async def test_events_that_the_log_has_lost_come_from_rows(storage, rows):
    log = await storage.subscribe(TURN)
    silent = SilentLogs(storage, rows.load)
    await silent.poll()
    assert not log.fallback
    await reads_once_more(storage)
    await silent.poll()
    assert positions(log)[-1] == STANDINGS[-1].sequence


async def test_events_of_a_log_that_cannot_be_read_come_from_rows(storage, rows):
    log = await storage.subscribe(TURN)
    storage.is_broken = True
    silent = SilentLogs(storage, rows.load)
    await silent.poll()
    await reads_once_more(storage)
    await silent.poll()
    assert positions(log)[-1] == STANDINGS[-1].sequence


async def test_a_read_that_hangs_is_not_awaited(storage, rows):
    log = await storage.subscribe(TURN)
    storage.may_read.clear()
    silent = SilentLogs(storage, rows.load)
    for _ in range(MAX_LOOKS):
        assert not log.fallback
        await silent.poll()
    assert positions(log)[-1] == STANDINGS[-1].sequence


async def test_subscribers_of_a_log_that_is_dropped_read_the_rows(storage):
    """The turn's rows have changed before this process has read the end of its log."""
    log = await storage.subscribe(TURN)
    waiting = asyncio.ensure_future(log.wait_for_change())
    await asyncio.sleep(0)
    storage.drop(TURN)
    async with asyncio.timeout(30):
        await waiting
    assert log.is_over


async def test_a_log_that_is_dropped_before_its_first_read_keeps_nobody_waiting(
    storage,
):
    storage.may_read.clear()
    subscribing = asyncio.ensure_future(storage.subscribe(TURN))
    await asyncio.sleep(0)
    storage.drop(TURN)
    async with asyncio.timeout(30):
        assert (await subscribing).is_over
