"""A run: executes one claimed turn, stores its progress and publishes its events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from django.conf import settings

from conversations.context import render
from conversations.engine import claim_store
from conversations.engine.claim_store import Claim
from conversations.engine.database.disk_space import report_full
from conversations.engine.database.executor import Database
from conversations.engine.event_log import Publisher, StaleEpoch
from conversations.engine.loading.approvals import ApprovalExpired
from conversations.engine.loading.context_use import (
    load_claimed_log,
    measure_prompt,
)
from conversations.engine.loading.loaded_turn import LoadFiles, Work
from conversations.engine.loading.turn_context import TurnContext
from conversations.engine.loading.turn_loader import load_history
from conversations.engine.loading.unloaded_turn import load_unloaded
from conversations.engine.process.file_threads import run_on_file_thread
from conversations.engine.runs.large_answer_limits import LargeAnswer, LargeAnswers
from conversations.engine.runs.questions import RunQuestions
from conversations.engine.runs.record import RunEvents, RunRecord, TurnClock
from conversations.engine.runs.snapshots import Snapshots
from conversations.engine.runs.state import RunState
from conversations.engine.runs.writes import RunWrites
from conversations.turns.compaction import Log
from conversations.turns.history import ContextBlock, History
from llm.db.outages import UNREACHABLE
from llm.errors import LLMError, TryAgain
from llm.generation.cancel_response import cancel_response
from llm.telemetry import log_context, tracing
from llm.wire.items import Event, Item
from llm.wire.request import BackgroundResponse, Request
from tools.execute import format_trace
from tools.loop.loop import respond
from tools.loop.resume import Resumption
from tools.loop.task import PreparedContext, Task

if TYPE_CHECKING:
    from opentelemetry.trace import Span

logger = logging.getLogger(__name__)

CANCEL_PATIENCE = 5.0  # seconds for the cancellation of a response at its provider


class Interrupted(LLMError):
    """The answer was interrupted too often; send the message again."""

    code, status = "E_TURN_INTERRUPTED", 500


class ServerFault(LLMError):
    """Internal error; the staff can find the details in the log."""

    code, status = "E_INTERNAL", 500


class Run:
    """Runs one claimed turn to its end, unless it is released or fenced before.

    Its parts refer to each other in one direction, so that a finished run is freed at
    once.
    """

    __slots__ = (
        "_clock",
        "_database",
        "_events",
        "_large_answer",
        "_loading",
        "_seconds_left",
        "_span",
        "claim",
        "questions",
        "record",
        "snapshots",
        "state",
        "writes",
    )

    def __init__(
        self,
        claim: Claim,
        log: Publisher,
        database: Database,
        loading: Awaitable[Work | None],
        wake_background: Callable[[], None] = lambda: None,
        large_answers: LargeAnswers | None = None,
    ) -> None:
        self.claim = claim
        self.state = state = RunState(claim)
        left = claim.seconds_left
        #: Until the deadline, at the moment of the claim.
        self._seconds_left = settings.TURN_DEADLINE if left is None else left
        self.snapshots = Snapshots(state)
        self._database = database
        self._loading: Awaitable[Work | None] | None = loading
        self._span: Span | None = None  # None without traces
        self._events = RunEvents(state, log)
        self._large_answer = LargeAnswer(large_answers or LargeAnswers())
        self.writes = writes = RunWrites(state, database)
        self._clock = TurnClock(state, writes)
        self.questions = RunQuestions(
            state, database, writes, self._events, self._clock
        )
        self.record = RunRecord(
            state,
            database,
            writes,
            self._clock,
            self._large_answer,
            wake_background,
        )

    async def main(self) -> None:
        """Raises only CancelledError; an internal error ends the turn as failed."""
        try:
            if (task := await self._begin()) is not None:
                await self._respond(task)
        except StaleEpoch:
            if self.state.is_suspending and self.state.stop is not None:
                await self._suspend_again()
            else:
                logger.warning("turn %s was taken over", self.claim.turn_id)
        except UNREACHABLE as exc:
            # The rows are as last committed; the run that claims the turn after the
            # lease has expired continues from there.
            report_full(exc)
            logger.warning("turn %s is left: %s", self.claim.turn_id, format_trace(exc))
        except Exception as exc:
            if report_full(exc):  # a full disk while writing a file: as above
                logger.warning(
                    "turn %s is left: %s", self.claim.turn_id, format_trace(exc)
                )
                return
            logger.error("turn %s failed: %s", self.claim.turn_id, format_trace(exc))
            await self._fail_safely()
        finally:
            self._large_answer.release()
            if tracing.spans is not None and self._span is not None:
                tracing.spans.end(self._span, self._error_type())

    async def _suspend_again(self) -> None:
        """The run was stopped while the rows of its questions were written: another
        run publishes them, or ends the turn if it has no time left."""
        turn_id = self.claim.turn_id
        with suppress(*UNREACHABLE):  # a new subscriber does the same
            if await self._database.write(claim_store.requeue_to_republish, turn_id):
                self.state.next_turns = [turn_id]

    async def _begin(self) -> Task | None:
        """Load the task; None if there is nothing left to do."""
        assert self._loading is not None, "a run begins once"
        state = self.state
        loading, self._loading = self._loading, None
        try:
            work = await loading
            assert work is not None, "it is claimed"
            # Before anything is published: a snapshot would replace the partial items.
            if work.load_files is not None and not work.cancel_requested:
                await self._load_files(work.load_files)
        except LLMError as exc:
            await self._end_unloaded(exc)
            return None
        log_context.request_id.set(work.caller.request_id)
        if tracing.spans is not None:
            self._span = tracing.spans.start_turn(
                work.caller.trace_parent,
                self._describe(work),
                conversation_id=self.claim.conversation_id,
                kind=work.route.endpoint.provider.name,
            )
        self.record.has_new_results = work.has_new_results
        if state.stop == "released":  # before the run has done anything
            await self.record.release(
                work.task.partial, work.pending, self._seconds_left
            )
        if state.stop in ("released", "fenced"):
            return None
        if work.meter:
            work.meter.database = self._database
        earlier_positions = work.earlier_positions if self.claim.epoch > 1 else None
        self._events.publish(state.begin(work), earlier_positions)
        left = work.task.partial
        if self.claim.claims_without_progress > settings.TURN_MAX_CLAIMS:
            await self._end_here(left, lambda: state.builder.fail(Interrupted()))
        elif work.cancel_requested or state.stop:
            await self._end_here(left, state.builder.cancel)
        elif work.is_approval_expired:
            await self._end_here(left, lambda: state.builder.fail(ApprovalExpired()))
        elif self._seconds_left <= 0:
            await self._end_here(left, lambda: state.builder.cancel("deadline"))
        else:
            return self._task(work)
        return None

    async def _load_files(self, load_files: LoadFiles) -> None:
        """Returns at once where the run is stopped, which then needs no files."""
        state = self.state
        if state.stop is not None:
            return
        task = state.in_loop = asyncio.current_task()
        assert task is not None
        try:
            await run_on_file_thread(load_files)
        except asyncio.CancelledError:
            if state.stop is None:
                raise
            task.uncancel()
        finally:
            state.in_loop = None
        if state.stop is not None:
            await _absorb_late_cancel()

    def _describe(self, work: Work) -> dict[str, str | int]:
        """Attributes of the run's span."""
        return {
            "gen_ai.request.model": work.route.name,
            "parley.turn.id": self.claim.turn_id,
            "parley.turn.epoch": self.claim.epoch,
            "parley.request.id": work.caller.request_id,
        }

    def _error_type(self) -> str:
        """Why the run did not end the turn in order; "" if it did."""
        state = self.state
        if state.stop is not None:
            return state.stop
        if not state.ended_as:
            return "" if state.is_suspending else "interrupted"
        return "" if state.ended_as == "completed" else state.ended_as

    async def _end_unloaded(self, error: LLMError) -> None:
        """End a turn that cannot be loaded. One that an earlier run has begun goes on
        waiting for a decision, or is tried again later where that may help."""
        state = self.state
        if state.stop == "fenced":
            return
        if self.claim.epoch == 1:  # nothing is stored of it
            self._events.publish(state.builder.start())
            await self._finish(state.builder.fail(error))
            return
        turn = await self._database.read(load_unloaded, self.claim)
        is_stopped = turn.cancel_requested or state.stop in ("cancelled", "deadline")
        may_retry = isinstance(error, TryAgain) and self._seconds_left > 0
        if may_retry and not (is_stopped or turn.waits):
            await self.record.postpone()
            return
        earlier_positions = turn.progress["earlier_positions"]
        self._events.publish(state.begin_unloaded(turn), earlier_positions)
        if is_stopped:
            await self._end_here(turn.partial, state.builder.cancel)
        elif turn.waits:
            await self._wait_again()
        else:
            await self._end_here(turn.partial, lambda: state.builder.fail(error))

    async def _wait_again(self) -> None:
        """Publish the open questions of the turn, and let it wait for the answers."""
        builder, events = self.state.builder, list[Event]()
        for question in await self.record.wait_again(self._seconds_left):
            events += builder.extension("parley:approval.requested", question=question)
        events += builder.extension("parley:turn.waiting", reason="approval")
        self._events.publish(events)

    async def _end_here(
        self, left: Sequence[Item], end: Callable[[], list[Event]]
    ) -> None:
        """End the turn without a model call. Text that people have read stays: `left`
        are the items that were not done."""
        resumption = Resumption(self.state.builder, left)
        self._events.publish(resumption.start())
        await self._finish(end())

    def _task(self, work: Work) -> Task:
        """The task with the callbacks of this run."""
        task, gather, compactor = work.task, None, None
        if work.turn_context.sources:
            gather = partial(self._gather, work.turn_context, work.prepare)
        if work.build_compactor:
            compactor = work.build_compactor(
                measure=partial(self._measure_prompt, work.route.model_id),
                load=self._load_log,
                reload_history=partial(self._reload_history, work.history),
                is_exhausted=self.state.has_spent_all,
            )
        if work.tokens_left is not None:
            task = replace(task, are_tokens_used=self.state.has_used_all_tokens)
        return replace(
            task,
            prepare=partial(self._prepare, task.prepare),
            context=replace(
                task.context,
                ask=self.questions.ask,
                abandoned=self.state.note_abandoned,
            ),
            gather_context=gather,
            compactor=compactor,
            is_cost_exhausted=self.state.has_spent_all,
            wait_for_room=self._large_answer.wait_for_room,
            wait_to_close=self._large_answer.acquire,
        )

    async def _measure_prompt(self, model_id: int | None) -> int | None:
        return await self._database.read(measure_prompt, self.claim, model_id)

    async def _load_log(self) -> Log:
        return await self._database.read(load_claimed_log, self.claim)

    async def _reload_history(self, history: History) -> None:
        """Make further requests from the rows, as a run that takes over does."""
        new, load_files = await self._database.read(load_history, self.claim)
        if load_files is not None:
            await run_on_file_thread(load_files)
        history.replace(new)

    def _prepare(
        self, prepare: Callable[[Sequence[Item]], Request], answered: Sequence[Item]
    ) -> Request:
        """A request with the proofs of this turn's own items. Without them Anthropic
        pauses for ever, and a model that has called a tool repeats its reasoning."""
        return prepare([self.state.with_proof(item) for item in answered])

    async def _respond(self, task: Task) -> None:
        state = self.state
        state.in_loop = asyncio.current_task()
        self._clock.begin(self._seconds_left)
        batches = respond(
            task,
            builder=state.builder,
            record=self.record,
            stop_reason=state.stop_reason,
            publish=self._events.publish,
        )
        ending: list[Event] = []
        try:
            try:
                async for events in batches:
                    if state.builder.ended:
                        ending = events
                        break
                    self._events.publish(events)
            finally:
                await batches.aclose()
        finally:
            state.in_loop = None
            self._clock.end()
        await _absorb_late_cancel()
        if self.writes.abandoned is not None and state.stop != "fenced":
            await self.writes.settle()
        if state.stop == "released":
            pending, left = state.pending_response(), self._clock.seconds_left
            await self.record.release(state.uncommitted_items(), pending, left)
        elif state.stop != "fenced" and ending:  # otherwise the turn waits for a person
            await self._finish(ending)

    async def _gather(
        self, known: TurnContext, prepare: Callable[..., Request]
    ) -> PreparedContext:
        """Read the context, and store it before the model gets it. Raises
        StaleEpoch."""
        found = await render(known.sources, known.reader)
        await self.record.save_context(found)
        blocks = [ContextBlock(e.source.title, e.text) for e in found if not e.reason]
        return PreparedContext(
            partial(self._prepare, partial(prepare, context=blocks)),
            [{"source": e.source.name, "reason": e.reason} for e in found if e.reason],
        )

    async def _finish(self, ending: list[Event]) -> None:
        """Store the rows first, then publish the terminal event."""
        pending = self.state.pending_response()
        await self.record.finish(ending)
        self._events.publish_ending(ending)
        if pending and not self.state.has_host_ended():
            await self._cancel_at_provider(pending.response)

    async def _cancel_at_provider(self, response: BackgroundResponse) -> None:
        """Cancel a response that is not needed any more; it would continue and be paid
        for."""
        call = self.state.call
        route = (call.route if call else None) or self.state.model
        if route is None:  # of a turn that cannot be loaded, whose key is gone
            return
        try:
            async with asyncio.timeout(CANCEL_PATIENCE):
                await cancel_response(route, response)
        except (LLMError, TimeoutError) as exc:
            text = "a response of turn %s may go on at its provider: %s"
            logger.warning(text, self.claim.turn_id, type(exc).__name__)

    async def _fail_safely(self) -> None:
        builder = self.state.builder
        if builder.ended:  # and this end could not be stored
            return
        try:
            if self.state.began_at is None:
                await self._end_unloaded(ServerFault())
            else:
                await self._finish(builder.fail(ServerFault()))
        except Exception as exc:
            # A sweep takes the turn up again after the lease has expired.
            logger.error(
                "turn %s could not be ended: %s", self.claim.turn_id, format_trace(exc)
            )


async def _absorb_late_cancel() -> None:
    """Swallow a stop that came when the loop had nothing left to await: it is too late
    to count."""
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        task.uncancel()
