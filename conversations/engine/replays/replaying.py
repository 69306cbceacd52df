"""Runs replays in the background: one at a time in a process, turn by turn.

A replay has a lease, as a turn has, which is renewed before each turn. One whose
process is lost goes on in another, with the turns that are not over yet. Cancelling it
interrupts the turn that runs, with its call of a provider. A turn that was begun three
times without an end may be what ends the processes, so it fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from decimal import Decimal
from functools import partial
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from conversations.engine.database.executor import Database
from conversations.engine.metering import max_cost
from conversations.engine.process.cancellable_work import (
    CancelledByStaff,
    run_cancellable,
)
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.process.file_threads import run_on_file_thread
from conversations.engine.replays.changed_turn import ChangedTurn, load_changed
from conversations.engine.replays.replay_record import MOST, ReplayRecord
from conversations.models.staff.replay import Replay, ReplayedTurn
from llm.errors import LLMError
from llm.http.recording import unpack
from llm.models import ModelCall
from llm.pricing.caller import Caller
from llm.wire.facades.errors import error_to_store
from llm.wire.items import Event
from llm.wire.response import ResponseBuilder
from tools.execute import format_trace
from tools.loop.loop import respond
from tools.loop.task import Task
from tools.registry import Context

logger = logging.getLogger(__name__)

REPLAY_INTERVAL = 3.0  # seconds between two looks for a replay
TURN_TIMEOUT = 240.0  # seconds
LEASE = timedelta(seconds=TURN_TIMEOUT + 60)
MAX_ATTEMPTS = 3  # of a turn, in processes that were lost
_FAULT = "Internal error; the log has the details."
_GIVEN_UP = f"Given up: its process was lost {MAX_ATTEMPTS} times while it ran."


class ReplayPriceUnknown(LLMError):
    """The model's price is unknown, so the replay's budget cannot be kept."""

    code, status = "E_PRICE_UNKNOWN", 409


class Replays:
    """Looks for replays, and runs one of them."""

    def __init__(self, tasks: EngineTasks, database: Database) -> None:
        self._tasks = tasks
        self._database = database
        self._running: asyncio.Task[None] | None = None

    async def run_due(self) -> None:
        if self._running is not None and not self._running.done():
            return
        found = await self._database.read(find_due)
        if found is not None and await self._database.write(claim, found):
            run = self._run(found)
            self._running = self._tasks.create(run, name="replay")

    async def _run(self, replay_id: int) -> None:
        try:
            while row := await self._database.write(next_turn, replay_id):
                await self._run_turn(row)
        except Exception as exc:
            logger.error("replay %s stopped: %s", replay_id, format_trace(exc))

    async def _run_turn(self, row: ReplayedTurn) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(TURN_TIMEOUT):
                is_cancelled = partial(is_cancel_requested, row.replay_id)
                replaying = self._replay(row)
                await run_cancellable(replaying, self._database, is_cancelled)
        except CancelledByStaff:
            row.state = ReplayedTurn.State.CANCELLED
        except LLMError as exc:
            row.state, row.error = ReplayedTurn.State.FAILED, f"{exc.code}: {exc}"[:500]
        except TimeoutError:
            row.state, row.error = ReplayedTurn.State.FAILED, "It took too long."
        except asyncio.CancelledError:  # the process drains
            await self._database.write(give_back, row)
            raise
        except Exception as exc:
            logger.error("replay of %s failed: %s", row.turn_id, format_trace(exc))
            row.state, row.error = ReplayedTurn.State.FAILED, _FAULT
        row.seconds = time.monotonic() - began
        await self._database.write(partial(row.save, force_update=True))

    async def _replay(self, row: ReplayedTurn) -> None:
        """Fills in the row. Raises LLMError."""
        changed = await self._database.read(load_changed, row.turn_id, row.replay)
        if changed.rebuilt.load_files is not None:
            await run_on_file_thread(changed.rebuilt.load_files)
        route = changed.rebuilt.route
        id = f"replay_{uuid4().hex}"
        builder = ResponseBuilder(id=id, model=route.name)
        builder.start()
        left = await self._database.read(budget_left, row.replay)
        record = ReplayRecord(
            id, builder, route, Caller(user_id=row.replay.created_by_id), left
        )
        if left is not None and max_cost(changed.rebuilt.prepare([]), route) is None:
            raise ReplayPriceUnknown
        try:
            events: list[Event] = []
            async for batch in respond(
                _task(changed, record), builder=builder, record=record
            ):
                events = batch or events
        finally:
            _note_figures(row, changed, record)
            row.items = [*builder.output, *builder.partial()]
            await self._database.write(ModelCall.objects.record_all, record.rows)
        row.state = ReplayedTurn.State.COMPLETED
        if error := error_to_store(events):
            row.state = ReplayedTurn.State.FAILED
            row.error = f"{error['code']}: {error['message']}"[:500]


def _task(changed: ChangedTurn, record: ReplayRecord) -> Task:
    rebuilt, turn = changed.rebuilt, changed.turn
    return Task(
        prepare=rebuilt.prepare,
        stream=rebuilt.stream,
        tools=changed.tools,
        client_tools=rebuilt.client_tools,
        parallel=rebuilt.is_parallel,
        max_steps=settings.TURN_MAX_STEPS,
        max_tool_calls=turn.options.get("max_tool_calls"),
        context=Context(
            user_id=turn.actor_id,
            conversation_id=turn.conversation_id,
            # Not the turn's: idempotency keys are made of it.
            turn_id=record.id,
            may_read_chats=turn.may_read_chats,
        ),
        is_cost_exhausted=record.is_cost_exhausted,
    )


def _note_figures(
    row: ReplayedTurn, changed: ChangedTurn, record: ReplayRecord
) -> None:
    row.model_calls = len(record.rows)
    row.input_tokens, row.output_tokens = record.input_tokens, record.output_tokens
    row.cost = min(MOST, (row.cost or 0) + record.cost)  # also of attempts before
    row.tools_run = list(changed.tools_run)
    first = record.rows[0].recording if record.rows else None
    if first is not None and changed.first_request:
        sent = unpack(first.pack())["request"]
        row.is_same_request = sent == changed.first_request


# Rows; synchronous


def find_due() -> int | None:
    """A replay that no process runs."""
    return _due().order_by("pk").values_list("pk", flat=True).first()


def claim(replay_id: int) -> bool:
    """True for one process."""
    until = timezone.now() + LEASE
    changed = _due().filter(pk=replay_id)
    return bool(changed.update(state=Replay.State.RUNNING, lease_until=until))


def _due() -> QuerySet[Replay]:
    is_free = Q(lease_until=None) | Q(lease_until__lt=timezone.now())
    return Replay.objects.filter(is_free, state__in=Replay.UNFINISHED)


@transaction.atomic
def next_turn(replay_id: int) -> ReplayedTurn | None:
    """The next turn of a claimed replay, whose lease is renewed. None at its end, which
    is stored."""
    related = ("language_model__provider", "tool_version__tool")
    change = Replay.objects.select_related(*related).filter(pk=replay_id).first()
    if change is None or change.state != Replay.State.RUNNING:
        return None
    pending = change.turns.filter(state=ReplayedTurn.State.PENDING)
    lost = pending.filter(attempts__gte=MAX_ATTEMPTS)
    lost.update(state=ReplayedTurn.State.FAILED, error=_GIVEN_UP)
    row = pending.order_by("pk").first()
    left = budget_left(change)
    rows = Replay.objects.filter(pk=replay_id)
    if row and not change.cancel_requested and (left is None or left > 0):
        rows.update(lease_until=timezone.now() + LEASE)
        row.replay, row.attempts = change, row.attempts + 1
        row.save(update_fields=["attempts"])
        return row
    State = Replay.State
    state = State.BUDGET if row else State.DONE
    interrupted = change.turns.filter(state=ReplayedTurn.State.CANCELLED)
    if change.cancel_requested and (row or interrupted.exists()):
        state = State.CANCELLED
    rows.update(state=state, lease_until=None, finished_at=timezone.now())
    return None


def is_cancel_requested(replay_id: int) -> bool:
    """True also of one that was deleted."""
    return not Replay.objects.filter(pk=replay_id, cancel_requested=False).exists()


@transaction.atomic
def give_back(row: ReplayedTurn) -> None:
    """Let another process begin the turn at once; it does not count as lost. What its
    calls have cost does."""
    row.attempts -= 1
    row.save(update_fields=["attempts", "cost"])
    Replay.objects.filter(pk=row.replay_id).update(lease_until=None)


def budget_left(change: Replay) -> Decimal | None:
    """USD; None without a budget."""
    if change.budget is None:
        return None
    spent: Decimal | None = change.turns.aggregate(sum=Sum("cost"))["sum"]
    return change.budget - (spent or 0)
