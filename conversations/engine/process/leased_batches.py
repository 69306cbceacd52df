"""Background work in batches (replays, evaluations): row by row, under a lease.

The lease of a batch is renewed before each row. A batch whose process is lost goes on
in another, with the rows that are still pending. Cancelling it interrupts the row that
is worked on, with its call of a provider. A row that was begun three times without an
end may be what ends the processes, so it fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from conversations.engine.database.executor import Database
from conversations.engine.process.cancellable_work import (
    CancelledByStaff,
    run_cancellable,
)
from conversations.engine.process.engine_tasks import EngineTasks
from llm.db.clock import database_now
from llm.errors import LLMError
from tools.execute import format_trace

logger = logging.getLogger(__name__)

INTERVAL = 3.0  # seconds between two looks for a batch
ROW_TIMEOUT = 240.0  # seconds
LEASE = ROW_TIMEOUT + 60  # seconds
MAX_ATTEMPTS = 3  # of a row, in processes that were lost
MAX_ERROR = 500  # characters
_FAULT = "Internal error; the log has the details."
_GIVEN_UP = f"Given up: its process was lost {MAX_ATTEMPTS} times while it ran."


class BatchStore(ABC):
    """The rows of one kind of batch. Its methods are synchronous, for the database's
    threads.

    A batch has `state`, `lease_until`, `cancel_requested`, `finished_at`, `budget` and
    `UNFINISHED`; a row has `state`, `attempts`, `error`, `seconds` and `cost`.
    """

    batch_model: ClassVar[type[Any]]
    rows_field: ClassVar[str]  # the batch's field with its rows
    batch_field: ClassVar[str]  # the row's field with its batch
    order: ClassVar[Sequence[str]] = ("pk",)  # of the rows
    related: ClassVar[Sequence[str]] = ()  # what is read with the batch
    #: Fields of a row that are stored when it is given back.
    spent: ClassVar[Sequence[str]] = ("cost",)

    def find_due(self) -> int | None:
        """A batch that no process works on."""
        return self._due().order_by("pk").values_list("pk", flat=True).first()

    def claim(self, batch_id: int) -> datetime | None:
        """The end of the lease, for one process."""
        running = self.batch_model.State.RUNNING
        claimed = self._due().filter(pk=batch_id)
        if not claimed.update(state=running, lease_until=database_now(LEASE)):
            return None
        rows = self.batch_model.objects.filter(pk=batch_id, state=running)
        until: datetime | None = rows.values_list("lease_until", flat=True).first()
        return until

    def release_all(self) -> None:
        """Release all batches. Called at the start of the only process: the process
        that worked on them is gone."""
        running = self.batch_model.objects.filter(state=self.batch_model.State.RUNNING)
        running.update(lease_until=None)

    def _due(self) -> QuerySet[Any]:
        is_free = Q(lease_until=None) | Q(lease_until__lt=database_now())
        unfinished = self.batch_model.UNFINISHED
        found: QuerySet[Any] = self.batch_model.objects.filter(
            is_free, state__in=unfinished
        )
        return found

    @transaction.atomic
    def next_row(self, batch_id: int, lease: datetime) -> Any:
        """The next row of a claimed batch, whose lease is renewed. None at its end,
        which is stored, and if another process has claimed it."""
        found = self.batch_model.objects.filter(pk=batch_id, lease_until=lease)
        batch = found.select_related(*self.related).first()
        if batch is None or batch.state != batch.State.RUNNING:
            return None
        rows = getattr(batch, self.rows_field)
        states = rows.model.State
        pending = rows.filter(state=states.PENDING)
        lost = pending.filter(attempts__gte=MAX_ATTEMPTS)
        lost.update(state=states.FAILED, error=_GIVEN_UP)
        row = pending.order_by(*self.order).first()
        left = self.budget_left(batch)
        if row and not batch.cancel_requested and (left is None or left > 0):
            if not found.update(lease_until=database_now(LEASE)):
                return None  # claimed meanwhile
            batch.refresh_from_db(fields=["lease_until"])
            setattr(row, self.batch_field, batch)
            row.attempts += 1
            row.save(update_fields=["attempts"])
            return row
        state = batch.State.BUDGET if row else batch.State.DONE
        is_interrupted = row or rows.filter(state=states.CANCELLED).exists()
        if batch.cancel_requested and is_interrupted:
            state = batch.State.CANCELLED
        ended = {"state": state, "finished_at": timezone.now(), "lease_until": None}
        found.update(**ended, **self.describe_end(batch, state))
        return None

    def describe_end(self, batch: Any, state: str) -> Mapping[str, Any]:
        """Fields of the batch to store at its end, besides its state."""
        return {}

    def is_cancel_requested(self, batch_id: int) -> bool:
        """True also for a batch that was deleted."""
        others = self.batch_model.objects.filter(pk=batch_id, cancel_requested=False)
        return not others.exists()

    @transaction.atomic
    def give_back(self, row: Any) -> None:
        """Let another process begin the row at once. The attempt does not count, but
        what its calls have cost does."""
        if self._has_lease(row):
            row.attempts -= 1
            row.save(update_fields=["attempts", *self.spent])
        self._batch_of(row).update(lease_until=None)

    def batch_id_of(self, row: Any) -> int:
        batch_id: int = getattr(row, f"{self.batch_field}_id")
        return batch_id

    @transaction.atomic
    def end_row(self, row: Any) -> None:
        """Store how it ended."""
        if self._has_lease(row):
            row.save(force_update=True)

    def lease_of(self, row: Any) -> datetime:
        """The end of the lease under which the row was begun."""
        lease: datetime = getattr(row, self.batch_field).lease_until
        return lease

    def _has_lease(self, row: Any) -> bool:
        """False if another process has claimed the batch, and for a row that is gone:
        it is erased with its turn, even while a process works on it. What exists is
        locked until the transaction ends: the batch first, as where it is claimed."""
        rows = type(row).objects.filter(pk=row.pk)
        found = (self._batch_of(row), rows)
        return all(each.select_for_update().exists() for each in found)

    def _batch_of(self, row: Any) -> QuerySet[Any]:
        """Empty if another process has claimed it."""
        found: QuerySet[Any] = self.batch_model.objects.filter(
            pk=self.batch_id_of(row), lease_until=self.lease_of(row)
        )
        return found

    def budget_left(self, batch: Any) -> Decimal | None:
        """USD; None without a budget."""
        if batch.budget is None:
            return None
        budget: Decimal = batch.budget
        spent = getattr(batch, self.rows_field).aggregate(sum=Sum("cost"))["sum"]
        return budget - (spent or 0)


class BatchWorker(ABC):
    """Looks for batches of one kind, and works on one of them."""

    store: ClassVar[BatchStore]

    def __init__(self, tasks: EngineTasks, database: Database) -> None:
        self._tasks = tasks
        self._database = database
        self._running: asyncio.Task[None] | None = None

    @abstractmethod
    async def work_on(self, row: Any) -> None:
        """Fill in the row. Raises LLMError."""

    async def run_due(self) -> None:
        if self._running is not None and not self._running.done():
            return
        found = await self._database.read(self.store.find_due)
        if found is None:
            return
        if lease := await self._database.write(self.store.claim, found):
            self._running = self._tasks.create(self._run(found, lease), name="replay")

    async def _run(self, batch_id: int, lease: datetime) -> None:
        store, write = self.store, self._database.write
        try:
            while row := await write(store.next_row, batch_id, lease):
                await self._run_row(row)
                lease = store.lease_of(row)
        except Exception as exc:
            kind = store.batch_model.__name__
            logger.error("%s %s stopped: %s", kind, batch_id, format_trace(exc))

    async def _run_row(self, row: Any) -> None:
        """Work on the row, and store how it ended."""
        store, states, began = self.store, row.State, time.monotonic()
        batch_id = store.batch_id_of(row)
        try:
            async with asyncio.timeout(ROW_TIMEOUT):
                is_cancelled = partial(store.is_cancel_requested, batch_id)
                work = self.work_on(row)
                await run_cancellable(work, self._database, is_cancelled)
        except CancelledByStaff:
            row.state = states.CANCELLED
        except LLMError as exc:
            row.state, row.error = states.FAILED, f"{exc.code}: {exc}"[:MAX_ERROR]
        except TimeoutError:
            row.state, row.error = states.FAILED, "It took too long."
        except asyncio.CancelledError:  # the process drains
            await self._database.write(store.give_back, row)
            raise
        except Exception as exc:
            kind = type(row).__name__
            logger.error("%s %s failed: %s", kind, row.pk, format_trace(exc))
            row.state, row.error = states.FAILED, _FAULT
        row.seconds = time.monotonic() - began
        await self._database.write(store.end_row, row)
