"""Runs evaluations in the background: one at a time in a process, answer by answer.

A run has a lease, which is renewed before each answer. One whose process is lost goes
on in another, with the answers that are still pending. Cancelling it interrupts the
answer that is made, with its call of a provider. An answer that was begun three
times without an end may be what ends the processes, so it fails.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from decimal import Decimal
from functools import partial

from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from conversations.engine.database.executor import Database
from conversations.engine.evaluations.expectations import Check, check
from conversations.engine.evaluations.judging import judge
from conversations.engine.evaluations.trial import (
    NotRunnable,
    Trial,
    load_trial,
    new_record,
    run_trial,
)
from conversations.engine.process.cancellable_work import (
    CancelledByStaff,
    run_cancellable,
)
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.replays.replay_record import MOST, ReplayRecord
from conversations.models.staff.evaluation import EvaluationAnswer, EvaluationRun
from llm import router
from llm.errors import LLMError, ModelNotAvailable
from llm.models import LanguageModel, ModelCall
from llm.provider import Route
from llm.wire.items import output_text, user_message
from tools.execute import format_trace

logger = logging.getLogger(__name__)

EVALUATION_INTERVAL = 3.0  # seconds between two looks for a run
ANSWER_TIMEOUT = 240.0  # seconds, with its judge
LEASE = timedelta(seconds=ANSWER_TIMEOUT + 60)
MAX_ATTEMPTS = 3  # of an answer, in processes that were lost
MAX_TEXT = 100_000  # characters of an answer that are stored and checked
_FAULT = "Internal error; the log has the details."
_GIVEN_UP = f"Given up: its process was lost {MAX_ATTEMPTS} times while it was made."


class Evaluations:
    """Looks for runs, and works on one of them."""

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

    async def _run(self, run_id: int) -> None:
        try:
            while row := await self._database.write(next_answer, run_id):
                await self._evaluate(row)
        except Exception as exc:
            logger.error("evaluation %s stopped: %s", run_id, format_trace(exc))

    async def _evaluate(self, row: EvaluationAnswer) -> None:
        began = time.monotonic()
        State = EvaluationAnswer.State
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT):
                is_cancelled = partial(is_cancel_requested, row.run_id)
                await run_cancellable(self._answer(row), self._database, is_cancelled)
        except CancelledByStaff:
            row.state = State.CANCELLED
        except LLMError as exc:
            row.state, row.error = State.FAILED, f"{exc.code}: {exc}"[:500]
        except TimeoutError:
            row.state, row.error = State.FAILED, "It took too long."
        except asyncio.CancelledError:  # the process drains
            await self._database.write(give_back, row)
            raise
        except Exception as exc:
            logger.error("answer %s failed: %s", row.pk, format_trace(exc))
            row.state, row.error = State.FAILED, _FAULT
        row.seconds = time.monotonic() - began
        await self._database.write(partial(row.save, force_update=True))

    async def _answer(self, row: EvaluationAnswer) -> None:
        """Fills in the row. Raises LLMError."""
        trial, judge_route, left = await self._database.read(_load, row)
        record = new_record(trial.route, trial.user_id, left)
        try:
            result = await run_trial(trial, record)
        finally:
            await self._note(row, record)
        row.text = output_text(result.output)[:MAX_TEXT].replace("\0", "\ufffd")
        if result.error:
            row.state, row.error = EvaluationAnswer.State.FAILED, result.error
            return
        found = await asyncio.to_thread(lambda: list(check(row.case, row.text)))
        if judge_route is not None:
            found.append(await self._judge(row, judge_route, trial, left))
        State = EvaluationAnswer.State
        row.checks = [each.as_table() for each in found]
        is_met = all(each.passed for each in found)
        row.state = State.PASSED if is_met else State.UNMET

    async def _judge(
        self,
        row: EvaluationAnswer,
        route: Route,
        trial: Trial,
        left: Decimal | None,
    ) -> Check:
        left = None if left is None else left - (row.cost or 0)
        record = new_record(route, trial.user_id, left)
        try:
            return await judge(row.case, row.text, record)
        finally:
            await self._note(row, record)

    async def _note(self, row: EvaluationAnswer, record: ReplayRecord) -> None:
        row.model_calls += len(record.rows)
        row.tokens += record.tokens
        row.cost = min(MOST, (row.cost or 0) + record.cost)
        await self._database.write(ModelCall.objects.record_all, record.rows)


# Rows; synchronous


def _load(row: EvaluationAnswer) -> tuple[Trial, Route | None, Decimal | None]:
    """The trial, the route to its judge, and the budget that is left."""
    run = row.run
    user = run.created_by
    if user is None or not user.is_active:
        raise NotRunnable("The person who began this evaluation is gone.")
    is_live = row.side == EvaluationAnswer.Side.LIVE
    content = (run.live_content or {}) if is_live else run.content
    items = [user_message(row.case["input"])]
    trial = load_trial(run.evaluation_set.preset, content, user, items)
    route = None
    if row.case["rubric"].strip():
        if run.judge is None:
            raise NotRunnable("The model that judges no longer exists.")
        if not LanguageModel.objects.available_to(user).filter(pk=run.judge.pk):
            raise ModelNotAvailable
        route = router.route_of(run.judge)
    return trial, route, budget_left(run)


def find_due() -> int | None:
    """A run that no process works on."""
    return _due().order_by("pk").values_list("pk", flat=True).first()


def claim(run_id: int) -> bool:
    """True for one process."""
    until = timezone.now() + LEASE
    changed = _due().filter(pk=run_id)
    return bool(changed.update(state=EvaluationRun.State.RUNNING, lease_until=until))


def _due() -> QuerySet[EvaluationRun]:
    is_free = Q(lease_until=None) | Q(lease_until__lt=timezone.now())
    return EvaluationRun.objects.filter(is_free, state__in=EvaluationRun.UNFINISHED)


@transaction.atomic
def next_answer(run_id: int) -> EvaluationAnswer | None:
    """The next answer of a claimed run, whose lease is renewed. None at its end, which
    is stored."""
    State = EvaluationRun.State
    related = ("evaluation_set__preset", "judge__provider", "created_by")
    run = EvaluationRun.objects.select_related(*related).filter(pk=run_id).first()
    if run is None or run.state != State.RUNNING:
        return None
    pending = run.answers.filter(state=EvaluationAnswer.State.PENDING)
    lost = pending.filter(attempts__gte=MAX_ATTEMPTS)
    lost.update(state=EvaluationAnswer.State.FAILED, error=_GIVEN_UP)
    row = pending.order_by("number", "side").first()
    left = budget_left(run)
    rows = EvaluationRun.objects.filter(pk=run_id)
    if row and not run.cancel_requested and (left is None or left > 0):
        rows.update(lease_until=timezone.now() + LEASE)
        row.run, row.attempts = run, row.attempts + 1
        row.save(update_fields=["attempts"])
        return row
    state, passed = State.DONE, None
    interrupted = run.answers.filter(state=EvaluationAnswer.State.CANCELLED)
    if run.cancel_requested and (row or interrupted.exists()):
        state = State.CANCELLED
    elif row:
        state = State.BUDGET
    else:
        own = run.answers.filter(side=EvaluationAnswer.Side.DRAFT)
        passed = not own.exclude(state=EvaluationAnswer.State.PASSED).exists()
    ended = {"state": state, "passed": passed, "finished_at": timezone.now()}
    rows.update(lease_until=None, **ended)
    return None


def is_cancel_requested(run_id: int) -> bool:
    """True also of one that was deleted."""
    return not EvaluationRun.objects.filter(pk=run_id, cancel_requested=False).exists()


@transaction.atomic
def give_back(row: EvaluationAnswer) -> None:
    """Let another process begin the answer at once; it does not count as lost. What its
    calls have cost does."""
    row.attempts -= 1
    row.save(update_fields=["attempts", "model_calls", "tokens", "cost"])
    EvaluationRun.objects.filter(pk=row.run_id).update(lease_until=None)


def budget_left(run: EvaluationRun) -> Decimal | None:
    """USD; None without a budget."""
    if run.budget is None:
        return None
    spent: Decimal | None = run.answers.aggregate(sum=Sum("cost"))["sum"]
    return run.budget - (spent or 0)
