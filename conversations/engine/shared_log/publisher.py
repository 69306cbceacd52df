"""What the publishers over Redis and PostgreSQL have in common: the logs of this
process's runs, and which of them have changed since the last write.

Runs append and continue; a task of the publisher writes. The storage may become
unavailable and come back empty, so the events of a run are kept until its end and can
be sent again.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from conversations.engine.shared_log.run_log import RunLog

FIRST_PAUSE, BACKOFF = 0.1, 1.0  # seconds between two attempts, at first and at most
UNSENT_RETENTION = 60.0  # seconds for which a finished log waits for the storage


class LogPublisher(ABC):
    """A subclass writes the logs in `_changed` whenever `_work` is set."""

    #: Bytes of an event above which it is to be stored separately.
    largest: float = math.inf

    def __init__(self) -> None:
        self._logs: dict[str, RunLog] = {}
        self._changed: set[RunLog] = set()
        self._work = asyncio.Event()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    async def close(self) -> None:
        """Write what is left, if the storage is available."""

    @abstractmethod
    async def delete(self, turn_id: str) -> None:
        """Delete the turn's events, if the storage is available."""

    def open(self, turn_id: str, on_fenced: Callable[[], None]) -> RunLog:
        if (earlier := self._logs.get(turn_id)) is not None:
            # The run of an earlier epoch, which has ended here: storages refuse the
            # events that are left, and the new run publishes all that counts.
            earlier.is_fenced = True
            self._forget(earlier)
        log = RunLog(turn_id, self._on_change, on_fenced, largest=self.largest)
        self._logs[turn_id] = log
        return log

    def list_open(self) -> list[RunLog]:
        return [log for log in list(self._logs.values()) if not log.closed]

    def end(self, turn_id: str) -> None:
        """The run is over; its remaining events are still sent."""
        if log := self._logs.get(turn_id):
            log.closed = True
            self._on_change(log)
            asyncio.get_running_loop().call_later(UNSENT_RETENTION, self._forget, log)

    def _on_change(self, log: RunLog) -> None:
        self._changed.add(log)
        self._work.set()

    def _forget(self, log: RunLog) -> None:
        self._changed.discard(log)
        log.large.clear()
        if self._logs.get(log.turn_id) is log:
            del self._logs[log.turn_id]

    def _forget_sent(self, logs: Iterable[RunLog]) -> None:
        for log in logs:
            if log.closed and log.is_sent:
                self._forget(log)
