"""What this process reports for the live board, and the orders that it finds there."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from conversations.access import maintenance, overload
from conversations.access.policy import announcements, terms
from conversations.engine.database.executor import Database
from conversations.engine.dispatcher import Dispatcher
from llm.conf import settings as llm_settings
from llm.http import connections

REPORT_INTERVAL = 5.0  # seconds
FORGOTTEN_AFTER = timedelta(minutes=10)
LAG_INTERVAL = 0.1  # seconds between two measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFigures:
    running: int
    starting: int  # turns that wait for a place here
    slots: int
    connections: int  # open requests to providers
    connections_waiting: int
    max_connections: int
    drains: bool  # it starts no turns
    lag: float  # seconds that the event loop was late, at most, since the last report


class LagMeter:
    """Measures how late the event loop calls a timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._longest = 0.0
        self._set_timer()

    def take(self) -> float:
        """The longest delay since the last call, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def close(self) -> None:
        self._timer.cancel()

    def _set_timer(self) -> None:
        self._due = self._loop.time() + LAG_INTERVAL
        self._timer = self._loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        self._longest = max(self._longest, self._loop.time() - self._due)
        self._set_timer()


class StatusReport:
    """Created on the engine's event loop; `report` is called again and again."""

    def __init__(
        self, dispatcher: Dispatcher, database: Database, *, runs_turns: bool
    ) -> None:
        self._dispatcher = dispatcher
        self._database = database
        self._runs_turns = runs_turns
        self.slots = connections.slots()
        self._meter = LagMeter(asyncio.get_running_loop())
        self.lag = 0.0  # seconds; of the last report
        self._started_at = timezone.now()
        name = f"{socket.gethostname()[:60]}-{os.getpid()}"
        self.id = f"{name}-{uuid.uuid4().hex[:6]}"

    async def report(self) -> None:
        figures = self._figures()
        wanted = await self._database.write(self._store, figures)
        if wanted != self._dispatcher.drains:
            self._dispatcher.drains = wanted
            # The board says that a process drains once it does.
            await self._database.write(self._store, replace(figures, drains=wanted))

    async def close(self) -> None:
        self._meter.close()
        await self._database.write(_forget, self.id)

    def _figures(self) -> ProcessFigures:
        slots = self.slots
        running = len(self._dispatcher.runs)
        self.lag = round(self._meter.take(), 3)
        overload.load.note_memory()
        return ProcessFigures(
            running=running,
            starting=max(0, len(self._dispatcher.active_turns) - running),
            slots=self._dispatcher.max_runs,
            connections=slots.open,
            connections_waiting=slots.waiting,
            max_connections=llm_settings.LLM_MAX_CONNECTIONS,
            drains=self._dispatcher.drains,
            lag=self.lag,
        )

    def _store(self, figures: ProcessFigures) -> bool:
        """Write the row, and read what staff want: True if the process is to drain."""
        from conversations.models import ProcessStatus

        now = timezone.now()
        maintenance.load()
        announcements.load()
        terms.load()
        with transaction.atomic():
            own = ProcessStatus.objects.filter(pk=self.id)
            if not own.update(heard_at=now, figures=asdict(figures)):
                ProcessStatus.objects.create(
                    id=self.id,
                    runs_turns=self._runs_turns,
                    started_at=self._started_at,
                    heard_at=now,
                    figures=asdict(figures),
                    drains=self._dispatcher.drains,
                )
                lost = ProcessStatus.objects.filter(heard_at__lt=now - FORGOTTEN_AFTER)
                lost.delete()
            return own.values_list("drains", flat=True).get()


def _forget(process_id: str) -> None:
    from conversations.models import ProcessStatus

    ProcessStatus.objects.filter(pk=process_id).delete()
