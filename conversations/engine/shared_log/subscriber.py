"""Copies of the shared event log, for turns that have subscribers in this process.

The new batches of all turns are read in one round trip: when another process announces
them, and once a second for turns of which nothing is received.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conversations.engine.event_log import RETENTION, Entry, Position, TurnLog
from conversations.engine.process.task_shutdown import cancel_and_wait
from conversations.engine.shared_log.event_batches import unpack
from conversations.throttled_warning import ThrottledWarning

logger = logging.getLogger(__name__)

POLL_INTERVAL = 1.0  # seconds
READ_LIMIT = 200  # batches of one turn in one round trip
FIRST_PAUSE, BACKOFF = 0.05, 1.0  # seconds between two attempts, at first and at most


class SharedTurnLog(TurnLog):
    """A turn's log, as far as it has been read here."""

    def __init__(self, turn_id: str) -> None:
        super().__init__(turn_id)
        self.first_read = asyncio.Event()  # set after the first attempt to read
        self.received_at = 0.0  # when something new was received
        self.reads_begun = 0
        self.reads_ended = 0  # of those, also failed ones
        self.is_waiting = False  # for an event that is stored separately

    @property
    def last_position(self) -> Position:
        """The position of the last entry."""
        return Position(self.epoch, len(self.entries) - 1)

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries as they are in the shared log; some may be known already."""
        new: list[Entry] = []
        for entry in entries:
            epoch, sequence = entry.log_position
            if epoch > self.epoch and sequence == 0:
                self.begin(epoch)
                new = []
            end = len(self.entries) + len(new)
            if epoch == self.epoch and sequence == end:
                new.append(entry)
                self.ended = self.ended or entry.is_last
            elif entry.log_position > (self.epoch, end - 1):
                break  # entries in between are missing: they are read from the rows
        self.entries.extend(new)

    def continues_at(self, start: Position) -> bool:
        """Whether nothing is missing between the entries and a batch that starts
        here."""
        if start.epoch == self.epoch:
            return start.sequence <= len(self.entries)
        return start.epoch > self.epoch and start.sequence == 0


@dataclass(frozen=True, slots=True)
class StoredBatch:
    start: Position
    data: bytes


class LogSubscriber:
    """Subclasses learn which turns have new batches, and read them. `storage`: its name
    in the process's log."""

    def __init__(self, storage: str) -> None:
        self._logs: dict[str, SharedTurnLog] = {}
        self._to_read: set[str] = set()
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._warning = ThrottledWarning(
            logger, f"events cannot be read from {storage}: %s"
        )

    def start(self) -> None:
        self._tasks = [
            asyncio.ensure_future(self._run()),
            asyncio.ensure_future(self._poll_silent_logs()),
        ]

    async def close(self) -> None:
        await cancel_and_wait(self._tasks)

    async def subscribe(self, turn_id: str) -> SharedTurnLog:
        log = self._logs.get(turn_id)
        if log is None:
            log = self._logs[turn_id] = SharedTurnLog(turn_id)
            if not self._begin_receiving(turn_id):
                self.request_read([turn_id])
        log.subscriber_count += 1
        try:
            await log.first_read.wait()
        except asyncio.CancelledError:
            self.unsubscribe(log)
            raise
        return log

    def unsubscribe(self, log: TurnLog) -> None:
        log.subscriber_count -= 1
        if not log.subscriber_count:
            self._expire(log)

    def get(self, turn_id: str) -> SharedTurnLog | None:
        return self._logs.get(turn_id)

    def drop(self, turn_id: str) -> None:
        """Make subscribers read the turn from its rows from now on, also those that
        wait for its events now."""
        if (waiting := self._logs.get(turn_id)) is not None:
            waiting.is_over = True
            waiting.first_read.set()
            waiting.wake()
        log = self._logs[turn_id] = SharedTurnLog(turn_id)
        log.is_over = True
        log.first_read.set()
        self._expire(log)

    def _expire(self, log: TurnLog) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(RETENTION, self._drop_unused, log)

    def _drop_unused(self, log: TurnLog) -> None:
        if not log.subscriber_count and self._logs.get(log.turn_id) is log:
            del self._logs[log.turn_id]
            self._end_receiving(log.turn_id)

    def active_logs(self) -> list[SharedTurnLog]:
        """The logs of turns that are not over and have subscribers."""
        logs = self._logs.values()
        return [log for log in logs if log.subscriber_count and not log.ended]

    def list_open(self) -> list[SharedTurnLog]:
        logs = list(self._logs.values())
        return [log for log in logs if not (log.ended or log.is_over)]

    def wake_all(self) -> None:
        for log in self._logs.values():
            log.wake()

    # For subclasses

    def _begin_receiving(self, turn_id: str) -> bool:
        """Called for the first subscriber to a turn in this process. True if the first
        read will be requested as soon as batches are received (or, if that fails, by
        the poll); False: the caller requests it."""
        return False

    def _end_receiving(self, turn_id: str) -> None:
        """A turn has had no subscribers here for a while."""

    async def _read(self, logs: Sequence[SharedTurnLog]) -> None:
        """Read what follows the last entries of these logs, at least one of them, and
        `_apply` it. Raises the errors of an unavailable storage."""
        raise NotImplementedError

    async def _pause(self) -> None:
        """Wait before the next read."""

    # Reading

    def request_read(self, turn_ids: Iterable[str]) -> None:
        """Read what is new in these turns."""
        if turns := self._logs.keys() & set(turn_ids):
            self._to_read |= turns
            self._work.set()

    async def _poll_silent_logs(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(POLL_INTERVAL)
            limit = loop.time() - POLL_INTERVAL
            silent = [log for log in self.active_logs() if log.received_at < limit]
            self.request_read([log.turn_id for log in silent])

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._work.wait()
            self._work.clear()
            turn_ids, self._to_read = self._to_read, set()
            logs = [self._logs[id] for id in turn_ids if id in self._logs]
            ready = [log for log in logs if not log.is_waiting]
            for log in ready:
                log.reads_begun += 1
            try:
                if ready:
                    await self._read(ready)
                is_failed = False
            except Exception as exc:  # else no turn would be read again
                self._warning.log(type(exc).__name__)
                is_failed = True
            finally:
                for log in ready:
                    log.reads_ended = log.reads_begun
                for log in logs:
                    log.first_read.set()
            if is_failed:
                self._to_read |= turn_ids
                self._work.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, BACKOFF)
            else:
                pause = FIRST_PAUSE
                await self._pause()

    def _apply(self, log: SharedTurnLog, batches: Sequence[StoredBatch]) -> None:
        self._add(log, unpack_all(log.turn_id, batches))

    def _add(self, log: SharedTurnLog, entries: list[Entry]) -> None:
        before = log.last_position
        log.add(entries)
        if log.last_position > before:
            log.received_at = asyncio.get_running_loop().time()
            log.fallback = ()
            if log.epoch == before.epoch:
                log.publish(log.entries[before.sequence + 1 :])
            else:
                log.wake()


def unpack_all(turn_id: str, batches: Sequence[StoredBatch]) -> list[Entry]:
    entries: list[Entry] = []
    for batch in batches:
        if not batch.data:
            break  # the rows have the rest
        entries += unpack(turn_id, batch.start, batch.data)
    return entries
