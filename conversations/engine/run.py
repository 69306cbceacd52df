"""A run: executes one claimed turn, stores its progress and publishes its events."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any, Literal, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError

from conversations.access.admission import charge_user_tokens
from conversations.context import render
from conversations.engine import background_store, turn_context, turn_store
from conversations.engine.approvals import question_of, question_payload
from conversations.engine.database.disk_space import report_full
from conversations.engine.database.executor import Database
from conversations.engine.event_log import Position, Publisher, StaleEpoch
from conversations.engine.process import crash_points
from conversations.engine.turn_loader import Work
from conversations.engine.turn_store import (
    Claim,
    Ending,
    FinishedModelCall,
    NewQuestion,
    ProviderResponse,
    Snapshot,
    TurnProgress,
)
from conversations.models import Question, Turn
from conversations.turns.history import ContextBlock
from conversations.turns.loop import PreparedContext, Task, respond
from conversations.turns.resume import Resumption
from llm.errors import LLMError
from llm.generation.cancel_response import cancel_response
from llm.generation.result import cost_of
from llm.http.client import ProviderCall
from llm.http.timers import deadline_timer
from llm.policy import calls_made
from llm.provider import Route
from llm.wire.facades.errors import error_to_store
from llm.wire.items import Event, Item, ProviderData
from llm.wire.request import BackgroundResponse, Request
from llm.wire.response import ResponseBuilder
from tools.execute import CallOutcome, find_tool_name, format_trace
from tools.registry import Context, FormAnswer, RuntimeTool

logger = logging.getLogger(__name__)

T = TypeVar("T")

CANCEL_PATIENCE = 5.0  # seconds for the cancellation of a response at its provider
POLL_INTERVAL = 2.0  # seconds between polls, in case a notification is lost
#: A snapshot holds all uncommitted text, and one transaction renews the leases of all
#: runs, so long snapshots are stored less often: at most so many characters a second
#: ...
PACE = 1_000_000
LONGEST = 16_000_000  # ... and none beyond this length
LONG = 100_000  # characters; a longer snapshot is written separately
Stop = Literal["cancelled", "deadline", "released", "fenced"]


class Interrupted(LLMError):
    """The answer was interrupted too often; send the message again."""

    code, status = "E_TURN_INTERRUPTED", 500


class InternalError(LLMError):
    """Something went wrong on our side; it is on record for the staff."""

    code, status = "E_INTERNAL", 500


class Run:
    """Runs one claimed turn to its end, unless it is released or fenced before.

    Thousands may be open, so it stores only the loaded values that it needs again.
    """

    __slots__ = (
        "_abandoned",
        "_builder",
        "_call",
        "_call_after",
        "_calls_made",
        "_committed",
        "_cost_left",
        "_database",
        "_decision_events",
        "_delivering",
        "_has_large_answer_slot",
        "_in_loop",
        "_inputs",
        "_is_suspending",
        "_large_answer_slot",
        "_limits_owner",
        "_loading",
        "_log",
        "_model",
        "_open_forms",
        "_pending",
        "_proofs",
        "_resumed_length",
        "_route",
        "_seconds_left",
        "_snapshot_at",
        "_snapshot_due",
        "_steps",
        "_stop",
        "_stored_pending",
        "_tools",
        "_wake_background",
        "_writes",
        "claim",
        "has_new_results",
        "has_progressed",
        "is_long",
        "next_turn",
        "until",
    )

    def __init__(
        self,
        claim: Claim,
        log: Publisher,
        database: Database,
        loading: Awaitable[Work | None],
        wake_background: Callable[[], None] = lambda: None,
        large_answer_slot: asyncio.Semaphore | None = None,
    ) -> None:
        """`large_answer_slot` is shared by all runs: a large answer that ends holds it
        until its rows are written."""
        self.claim = claim
        self.has_new_results = False  # new background results may be stored
        self.next_turn: str | None = None  # the turn that waits for the end of this one
        self.until = math.inf  # event loop time of its deadline
        self.has_progressed = False  # beyond what earlier runs have stored
        self.is_long = False  # its last snapshot was long
        self._resumed_length = 0  # characters that an earlier run has stored
        self._open_forms = 0  # open forms
        self._seconds_left = 0.0  # until the deadline, while forms are open
        self._log = log
        self._database = database
        self._loading: Awaitable[Work | None] | None = loading
        self._stop: Stop | None = None
        self._is_suspending = False  # the rows may be written already
        self._in_loop: asyncio.Task[None] | None = None
        self._builder = ResponseBuilder(id=claim.turn_id, model="")
        self._model: Route | None = None  # the route that is tried first
        self._tools: Mapping[str, RuntimeTool] = {}
        self._inputs = 0  # number of the turn's own items
        self._route: Route | None = None  # route of the last call
        self._steps = 0  # provider calls
        self._committed = 0  # items of the response that are stored
        #: Their proofs by item id, which their provider needs back with them.
        self._proofs: Mapping[str, ProviderData] = {}
        self._calls_made: Sequence[FinishedModelCall] = ()
        self._call: ProviderCall | None = (
            None  # the last provider call, until it is stored
        )
        self._call_after = 0  # items that were stored when it began
        #: A response of an earlier run that its provider continues, until a new call
        #: replaces it.
        self._pending: ProviderResponse | None = None
        self._stored_pending: ProviderResponse | None = None  # as in the last snapshot
        self._limits_owner: str | None = None  # user to charge without a token
        self._cost_left: Decimal | None = None  # USD, of the message; None: no bound
        self._abandoned: frozenset[str] = frozenset()  # ids of calls
        self._writes = 0  # writes in progress
        self._snapshot_at = 0  # number of events published at the last snapshot
        self._snapshot_due = 0.0  # when the next snapshot may be taken
        self._wake_background = wake_background
        self._large_answer_slot = large_answer_slot
        self._has_large_answer_slot = False
        #: Rows of results that are being delivered, by the id of their item.
        self._delivering: Mapping[str, int] = {}
        #: By question; None if there was no question yet.
        self._decision_events: dict[str, asyncio.Event] | None = None

    async def main(self) -> None:
        """Raises only CancelledError; an internal error ends the turn as failed."""
        try:
            if (task := await self._begin()) is not None:
                await self._respond(task)
        except StaleEpoch:
            logger.warning("turn %s was taken over", self.claim.turn_id)
        except (OperationalError, InterfaceError) as exc:
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
            self._release_large_answer_slot()

    def cancel(self, reason: Stop = "cancelled") -> None:
        """Stop in any phase. The first reason counts."""
        if self._stop is not None or self._builder.ended:
            return
        if reason == "fenced" and self._is_suspending:
            return  # suspending is why a heartbeat finds no run
        self._stop = reason
        if self._in_loop is not None:
            self._in_loop.cancel()

    def on_timer(self) -> None:
        """The deadline has passed; called by the timer, see `llm.http.timers`."""
        self.until = math.inf
        self.cancel("deadline")

    def snapshot(self) -> Snapshot | None:
        """The uncommitted items. None if there is nothing new, and while a write is in
        progress: should it fail, they would be stored in neither place."""
        if self._writes:
            return None
        sequence = self._builder.sequence
        now = time.monotonic()
        pending = self._pending_response()
        is_news = sequence != self._snapshot_at or pending != self._stored_pending
        if not is_news or now < self._snapshot_due:
            return None
        items = self._uncommitted_items()
        length = _length(items)
        self._snapshot_due = now + length / PACE
        self.is_long = length > LONG
        if length > LONGEST:
            return None
        self._snapshot_at, self._stored_pending = sequence, pending
        self.has_progressed |= length > self._resumed_length
        return Snapshot(
            items,
            sequence - 1,
            is_long=self.is_long,
            is_progress=self.has_progressed,
            provider_response=pending,
        )

    def retake_snapshot(self) -> None:
        """The last snapshot was not stored: take the next one without further events,
        as the provider may stay silent for a long time."""
        self._snapshot_at = -1

    def _pending_response(self) -> ProviderResponse | None:
        """The response that a later run may resume: its end is not stored."""
        call = self._call
        if call is not None and call.background is not None:
            return ProviderResponse(call.background, self._call_after)
        return self._pending

    def _uncommitted_items(self) -> Sequence[Item]:
        return [*self._builder.output[self._committed :], *self._builder.partial()]

    async def _begin(self) -> Task | None:
        """Load the task; None if there is nothing left to do."""
        assert self._loading is not None, "a run begins once"
        loading, self._loading = self._loading, None
        try:
            work = await loading
        except LLMError as exc:
            self._publish(self._builder.start())
            await self._finish(self._builder.fail(exc))
            return None
        assert work is not None, "it is claimed"
        self.has_new_results = work.has_new_results
        if self._stop == "released":  # before the run has done anything
            partial, left = work.task.partial, work.pending
            await self._database.write(
                turn_store.release, self.claim, partial, [], left
            )
        if self._stop in ("released", "fenced"):
            return None
        self._publish_beginning(work)
        if self.claim.claims > settings.TURN_MAX_CLAIMS:
            await self._end_here(work, lambda: self._builder.fail(Interrupted()))
        elif work.cancel_requested or self._stop:
            await self._end_here(work, self._builder.cancel)
        elif self._time_left() <= 0:
            await self._end_here(work, lambda: self._builder.cancel("deadline"))
        else:
            return self._task(work)
        return None

    async def _end_here(self, work: Work, end: Callable[[], list[Event]]) -> None:
        """End the turn without a model call. Text that people have read stays."""
        self._publish(Resumption(self._builder, work.task.partial).start())
        await self._finish(end())

    def _time_left(self) -> float:
        """Seconds until the deadline, at the moment of the claim."""
        left = self.claim.seconds_left
        return settings.TURN_DEADLINE if left is None else left

    def _publish_beginning(self, work: Work) -> None:
        self._limits_owner = work.limits_owner
        if work.meter:
            work.meter.database = self._database
        self._model, self._inputs = work.route, work.inputs
        self._cost_left, self._pending = work.cost_left, work.pending
        self._resumed_length = _length(work.task.partial)
        self._tools = work.task.tools
        self._builder = ResponseBuilder(
            id=self.claim.turn_id,
            model=work.route.name,
            echo=work.echo,
            created_at=int(work.created_at.timestamp()),
        )
        usage = dict(work.usage) if work.usage else None
        events = [
            *self._builder.start(),
            *self._builder.restore(work.committed, usage, work.ended_output),
        ]
        self._committed, self._proofs = len(work.committed), work.proofs
        earlier_positions = work.earlier_positions if self.claim.epoch > 1 else None
        self._publish(events, earlier_positions)

    def _task(self, work: Work) -> Task:
        """The task with the callbacks of this run."""
        task, gather = work.task, None
        if work.turn_context.sources:
            gather = partial(self._gather, work.turn_context, work.prepare)
        context = replace(task.context, ask=self.ask, abandoned=self._note_abandoned)
        return replace(
            task,
            prepare=partial(self._prepare, task.prepare),
            context=context,
            gather_context=gather,
            is_cost_exhausted=self._has_spent_all,
            wait_to_close=self._acquire_large_answer_slot,
        )

    async def _acquire_large_answer_slot(self) -> None:
        """Wait for the slot: many large answers that end together would all be held
        whole, and encoded, at once."""
        if self._large_answer_slot is not None and not self._has_large_answer_slot:
            await self._large_answer_slot.acquire()
            self._has_large_answer_slot = True

    def _release_large_answer_slot(self) -> None:
        if self._large_answer_slot is not None and self._has_large_answer_slot:
            self._has_large_answer_slot = False
            self._large_answer_slot.release()

    def _prepare(
        self, prepare: Callable[[Sequence[Item]], Request], answered: Sequence[Item]
    ) -> Request:
        """A request with the proofs of this turn's own items. Without them Anthropic
        pauses for ever, and a model that has called a tool repeats its reasoning."""
        return prepare([self._with_proof(item) for item in answered])

    def _with_proof(self, item: Item) -> Item:
        proof = self._proofs.get(item["id"]) or self._proof(item)
        return {**item, "provider_data": proof} if proof else item

    def _has_spent_all(self) -> bool:
        return self._cost_left is not None and self._cost_left <= 0

    def _note_abandoned(self, call_id: str) -> None:
        self._abandoned |= {call_id}

    async def _respond(self, task: Task) -> None:
        self._in_loop = asyncio.current_task()
        deadline = deadline_timer()
        self.until = deadline.loop.time() + self._time_left()
        deadline.add(self)
        batches = respond(
            task,
            builder=self._builder,
            record=self,
            stop_reason=self._stop_reason,
            publish=self._publish,
        )
        ending: list[Event] = []
        try:
            try:
                async for events in batches:
                    if self._builder.ended:
                        ending = events
                        break
                    self._publish(events)
            finally:
                await batches.aclose()
        finally:
            self._in_loop = None
            deadline.remove(self)
        await _absorb_late_cancel()
        if self._stop == "released":
            items = self._uncommitted_items()
            made, self._calls_made = self._calls_made, ()
            pending = self._pending_response()
            await self._database.write(
                turn_store.release, self.claim, items, made, pending
            )
        elif self._stop != "fenced" and ending:  # otherwise the turn waits for a person
            await self._finish(ending)

    def _stop_reason(self) -> Stop:
        return self._stop or "cancelled"

    async def _gather(
        self, known: turn_context.TurnContext, prepare: Callable[..., Request]
    ) -> PreparedContext:
        """Read the context, and store it before the model gets it. Raises
        StaleEpoch."""
        found = await render(known.sources, known.reader)
        await self._write_shielded(turn_context.save_context, self.claim, found)
        blocks = [ContextBlock(e.source.title, e.text) for e in found if not e.reason]
        return PreparedContext(
            partial(self._prepare, partial(prepare, context=blocks)),
            [{"source": e.source.name, "reason": e.reason} for e in found if e.reason],
        )

    async def _finish(self, ending: list[Event]) -> None:
        """Store the rows first, then publish the terminal event."""
        response, pending = ending[-1]["response"], self._pending_response()
        self.next_turn = await self._database.write(
            turn_store.finish,
            self.claim,
            Ending(
                status=_status(response),
                response=response,
                error=error_to_store(ending),
                last_sequence=ending[-1]["sequence_number"],
                called=any(i["type"] == "function_call" for i in response["output"]),
                progress=self._progress(),
                abandoned=self._abandoned,
            ),
        )
        self._log.append(self.claim.epoch, ending)
        if pending and not self._has_host_ended():
            await self._cancel_at_provider(pending.response)

    def _has_host_ended(self) -> bool:
        finish = self._builder.finish
        return finish is not None and finish.reason != "size"

    async def _cancel_at_provider(self, response: BackgroundResponse) -> None:
        """Cancel a response that is not needed any more; it would continue and be paid
        for."""
        route = self._call.route if self._call else None
        route = route or self._model
        assert route is not None, "the turn has begun"
        try:
            async with asyncio.timeout(CANCEL_PATIENCE):
                await cancel_response(route, response)
        except (LLMError, TimeoutError) as exc:
            text = "a response of turn %s may go on at its provider: %s"
            logger.warning(text, self.claim.turn_id, type(exc).__name__)

    async def _fail_safely(self) -> None:
        try:
            if not self._builder.ended:
                await self._finish(self._builder.fail(InternalError()))
        except Exception as exc:
            # A sweep takes the turn up again after the lease has expired.
            logger.error(
                "turn %s could not be ended: %s", self.claim.turn_id, format_trace(exc)
            )

    # Methods of `loop.Record`

    async def save_calls(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        try:
            await self._advance(executing=calls, background=background)
        finally:  # a Stop may come between the commit and here; the calls end then
            if background:
                self._wake_background()

    async def save_outcomes(
        self, outcomes: Sequence[CallOutcome], *, last: bool
    ) -> None:
        await self._advance(outcomes=outcomes, items=last)
        if any(outcome.accepted for outcome in outcomes):
            self._wake_background()

    async def fetch_results(self) -> Sequence[Item]:
        self.has_new_results = False
        conversation = self.claim.conversation_id
        found = await self._database.read(background_store.load_results, conversation)
        self._delivering = {item["id"]: pk for pk, item in found}
        return [item for _, item in found]

    async def suspend(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        new_questions = [(call, question_of(call, self._tools)) for call in calls]
        progress = self._progress()
        self._is_suspending = True
        left = self.until - asyncio.get_running_loop().time()
        found = await self._write_shielded(
            turn_store.suspend, self.claim, progress, new_questions, left
        )
        if not found:
            self.next_turn = self.claim.turn_id  # this turn, once more
        by_id = {call["call_id"]: call for call in calls}
        return [question_payload(row, by_id[row.tool_call.call_id]) for row in found]

    async def ask(
        self, context: Context, message: str, schema: Mapping[str, Any]
    ) -> FormAnswer:
        """Show a form to the subscribers, and wait for the answer. Raises
        StaleEpoch."""
        new_question = NewQuestion(
            kind=Question.Kind.FORM, message=message, schema=schema
        )
        question = await self._database.write(
            turn_store.ask, self.claim, context.call_id, new_question
        )
        call = self._call_of(context.call_id)
        self._publish(
            self._builder.extension(
                "parley:approval.requested", question=question_payload(question, call)
            )
        )
        self._stop_clock()
        try:
            answer = await self._wait_for_answer(question)
        except asyncio.CancelledError:
            self._database.write(turn_store.withdraw, question.pk)
            raise
        finally:
            self._start_clock()
        self._publish(
            self._builder.extension(
                "parley:question.closed", id=question.pk, state=answer.state
            )
        )
        if answer.state == Question.State.ACCEPTED:
            return FormAnswer("accept", answer.answer or {})
        is_declined = answer.state == Question.State.DECLINED
        return FormAnswer("decline" if is_declined else "cancel")

    def _stop_clock(self) -> None:
        """Stop the turn's deadline while a person is asked."""
        self._open_forms += 1
        if self._open_forms == 1:
            self._seconds_left = self.until - deadline_timer().loop.time()
            self.until = math.inf
            self._save_clock(turn_store.stop_clock)

    def _start_clock(self) -> None:
        self._open_forms -= 1
        if not self._open_forms:
            deadline = deadline_timer()
            self.until = deadline.loop.time() + self._seconds_left
            deadline.fire_by(self.until)
            self._save_clock(turn_store.start_clock)

    def _save_clock(self, write: Callable[[Claim, float], None]) -> None:
        """Not awaited: a fenced run finds out with its next write."""
        writing = self._database.write(write, self.claim, self._seconds_left)
        writing.add_done_callback(_log_write_error)

    async def _wait_for_answer(self, question: Question) -> Question:
        """Wait for a notification or poll the row, whichever finds the answer first."""
        events = self._decision_events = (
            {} if self._decision_events is None else self._decision_events
        )
        event = events[question.pk] = asyncio.Event()
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), POLL_INTERVAL)
                found = await self._database.read(
                    turn_store.find_decided_question, question.pk
                )
                if found is not None:
                    return found
                event.clear()
        finally:
            del events[question.pk]

    def notify_decision(self, question_id: str) -> None:
        """Receive the notification that a person has answered."""
        if waiting := (self._decision_events or {}).get(question_id):
            waiting.set()

    def _call_of(self, call_id: str) -> Item:
        return next(i for i in self._builder.output if i.get("call_id") == call_id)

    def begin_model_call(self, call: ProviderCall) -> None:
        self._release_large_answer_slot()
        self._call, self._call_after = call, self._committed

    def record_model_call(self, call: ProviderCall) -> None:
        builder, model = self._builder, self._model
        assert model is not None
        self._route = call.route or model
        new = [
            FinishedModelCall(
                route=made.route or model,
                call=made,
                step=self._steps,
                cancelled=made.error is None and self._stop is not None,
            )
            for made in calls_made(
                call,
                start=builder.start_delta,
                usage=builder.call_usage,
                finish=builder.finish,
            )
            if made.started_at  # otherwise the call was refused here, and not sent
        ]
        self._calls_made = [*self._calls_made, *new]
        if self._cost_left is not None:
            costs = [cost_of(made.call, made.route) for made in new]
            self._cost_left -= sum(filter(None, costs), Decimal(0))
        self._charge(new)
        self._steps += 1

    def _charge(self, calls: Sequence[FinishedModelCall]) -> None:
        """Charge the tokens of the calls to the per-minute limit of a user without an
        access token."""
        used = [made.call.usage for made in calls if made.call.usage]
        amount = sum((u.input_tokens or 0) + (u.output_tokens or 0) for u in used)
        if self._limits_owner is None or not amount:
            return
        if settings.REDIS_URL:  # Redis is called in a thread
            self._database.read(charge_user_tokens, self._limits_owner, amount)
        else:
            charge_user_tokens(self._limits_owner, amount)

    async def _advance(
        self,
        *,
        executing: Sequence[Item] = (),
        background: Collection[str] = (),
        outcomes: Sequence[CallOutcome] = (),
        items: bool = True,
    ) -> None:
        progress = self._progress(executing, background, outcomes, items)
        await self._write_shielded(turn_store.advance, self.claim, progress)
        self.has_progressed |= bool(progress.items or progress.outcomes)
        if progress.items:
            self._call = self._pending = None
            self._release_large_answer_slot()

    async def _write_shielded(self, function: Callable[..., T], *args: Any) -> T:
        """Raises StaleEpoch. Raises CancelledError while the write continues all the
        same."""
        writing = asyncio.ensure_future(self._database.write(function, *args))
        self._writes += 1
        writing.add_done_callback(self._end_write)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(_log_write_error)
            raise

    def _end_write(self, writing: asyncio.Future[Any]) -> None:
        self._writes -= 1

    def _progress(
        self,
        executing: Sequence[Item] = (),
        background: Collection[str] = (),
        outcomes: Sequence[CallOutcome] = (),
        items: bool = True,
    ) -> TurnProgress:
        """What is new since the last write; from now on it counts as written."""
        builder = self._builder
        first = self._committed
        new = builder.output[first:] if items else []
        made, self._calls_made = self._calls_made, ()
        self._committed += len(new)
        proofs = {item["id"]: proof for item in new if (proof := self._proof(item))}
        if proofs:
            self._proofs = {**self._proofs, **proofs}
        delivering = self._delivering
        delivered = [delivering[i["id"]] for i in new if i.get("id") in delivering]
        return TurnProgress(
            items=[
                (item, proofs.get(item["id"]), sequence)
                for item, sequence in zip(new, builder.done_at[first:], strict=False)
            ],
            first_position=self._inputs + first,
            last_sequence=builder.sequence - 1,
            calls_made=made,
            executing=executing,
            background=background,
            delivered=delivered,
            outcomes=outcomes,
            is_durable=self._has_once_tools(executing, outcomes),
            usage=builder.usage,
            ended_output=builder.ended_output,
        )

    def _has_once_tools(
        self, calls: Sequence[Item], outcomes: Sequence[CallOutcome]
    ) -> bool:
        names = [call["name"] for call in calls]
        names += [self._call_of(outcome.call_id)["name"] for outcome in outcomes]
        found = [self._tools.get(find_tool_name(name, self._tools)) for name in names]
        return any(tool is not None and tool.replay == "once" for tool in found)

    def _proof(self, item: Item) -> ProviderData | None:
        raw = self._builder.proofs.get(item["id"])
        route = self._route  # of the call that produced all items since the last write
        if raw is None or route is None:
            return None
        return {"issuer": route.endpoint.issuer(route.model), "raw": raw}

    # Events

    def _publish(
        self,
        events: list[Event],
        earlier_positions: Mapping[int, Position] | None = None,
    ) -> None:
        if self._stop == "fenced":
            return
        if crash_points.IS_ARMED:
            crash_points.reach("append:before")
        self._log.append(self.claim.epoch, events, earlier_positions)
        if crash_points.IS_ARMED:
            crash_points.reach("append:after")


def _length(items: Sequence[Item]) -> int:
    """Characters of the texts in the items."""
    parts = [
        part
        for item in items
        for name in ("content", "summary")
        for part in item.get(name) or ()
    ]
    texts = [each.get("text") for each in parts]
    return sum(len(t or "") for t in [*texts, *(i.get("arguments") for i in items)])


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


def _log_write_error(writing: asyncio.Future[Any]) -> None:
    """Log the error of a write that is no longer awaited; a later write meets the same
    fence."""
    exc = None if writing.cancelled() else writing.exception()
    if exc and not isinstance(exc, StaleEpoch):
        logger.error("a write failed after a stop: %s", type(exc).__name__)


def _status(response: Mapping[str, Any]) -> str:
    if (response["incomplete_details"] or {}).get("reason") == "cancelled":
        return Turn.Status.CANCELLED
    status: str = response["status"]
    return status
