"""Runs evaluations in the background: one at a time in a process, answer by answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from conversations.engine.evaluations.expectations import Check, check
from conversations.engine.evaluations.judging import judge
from conversations.engine.evaluations.trial import (
    NotRunnable,
    Trial,
    load_trial,
    new_record,
    run_trial,
)
from conversations.engine.process.leased_batches import BatchStore, BatchWorker
from conversations.engine.replays.replay_record import ReplayRecord
from conversations.models.staff.evaluation import EvaluationAnswer, EvaluationRun
from llm import router
from llm.errors import ModelNotAvailable
from llm.models import LanguageModel, ModelCall
from llm.provider import Route
from llm.wire.items import output_text, user_message

MAX_TEXT = 100_000  # characters of an answer that are stored and checked


class EvaluationStore(BatchStore):
    batch_model = EvaluationRun
    rows_field, batch_field = "answers", "run"
    order = ("number", "side")
    related = ("evaluation_set__preset", "judge__provider", "created_by")
    spent = ("model_calls", "tokens", "cost")

    def describe_end(self, batch: EvaluationRun, state: str) -> Mapping[str, Any]:
        if state != EvaluationRun.State.DONE:
            return {"passed": None}
        own = batch.answers.filter(side=EvaluationAnswer.Side.DRAFT)
        unmet = own.exclude(state=EvaluationAnswer.State.PASSED)
        return {"passed": not unmet.exists()}


store = EvaluationStore()


class Evaluations(BatchWorker):
    store = store

    async def work_on(self, row: EvaluationAnswer) -> None:
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
        record.add_cost(row)
        row.model_calls += len(record.rows)
        row.tokens += record.tokens
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
    return trial, route, store.budget_left(run)
