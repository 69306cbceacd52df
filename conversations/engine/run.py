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

from conversations.admission import charge_user_tokens
from conversations.context import render
from conversations.engine import background_rows, faults, gathering, rows
from conversations.engine.approvals import question_of, told_question
from conversations.engine.database import Database
from conversations.engine.load import Work
from conversations.engine.log import Fenced, Journal, Position
from conversations.engine.rows import (
    Asked,
    CallMade,
    Claim,
    Ending,
    Progress,
    ProviderResponse,
    Snapshot,
)
from conversations.engine.storage import report_full
from conversations.history import ContextBlock
from conversations.loop import Gathered, Task, respond
from conversations.models import Question, Turn
from conversations.resume import Resumption
from llm.background import cancel_response
from llm.client import Call
from llm.clock import bell
from llm.errors import LLMError
from llm.policy import calls_made
from llm.provider import Route
from llm.result import cost_of
from llm.wire.facades.errors import to_keep
from llm.wire.items import Event, Item, ProviderData
from llm.wire.request import BackgroundResponse, Request
from llm.wire.response import ResponseBuilder
from tools.execute import Outcome, known_name, where
from tools.registry import Answer, Context, Tool

logger = logging.getLogger(__name__)

T = TypeVar("T")

CANCEL_PATIENCE = 5.0  # seconds for the cancellation of a response at its provider
LOOK = 2.0  # seconds between polls, in case a notification is lost
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
        "_asking",
        "_builder",
        "_call",
        "_call_after",
        "_calls_made",
        "_committed",
        "_cost_left",
        "_database",
        "_decided",
        "_delivering",
        "_endings",
        "_holds_ending",
        "_in_loop",
        "_inputs",
        "_limits_owner",
        "_loading",
        "_log",
        "_model",
        "_pending",
        "_pending_kept",
        "_proofs",
        "_route",
        "_said_before",
        "_seconds_left",
        "_snapshot_at",
        "_snapshot_due",
        "_steps",
        "_stop",
        "_suspends",
        "_tools",
        "_wake_background",
        "_writes",
        "claim",
        "has_news",
        "has_progressed",
        "is_long",
        "next_turn",
        "until",
    )

    def __init__(
        self,
        claim: Claim,
        log: Journal,
        database: Database,
        loading: Awaitable[Work | None],
        wake_background: Callable[[], None] = lambda: None,
        endings: asyncio.Semaphore | None = None,
    ) -> None:
        """`large_answer_slot` is shared by all runs: a large answer that ends holds it
        until its rows are written."""
        self.claim = claim
        self.has_news = False  # new background results may be stored
        self.next_turn: str | None = None  # the turn that waits for the end of this one
        self.until = math.inf  # event loop time of its deadline
        self.has_progressed = False  # beyond what earlier runs have stored
        self.is_long = False  # its last snapshot was long
        self._said_before = 0  # characters that an earlier run has stored
        self._asking = 0  # open forms
        self._seconds_left = 0.0  # until the deadline, while forms are open
        self._log = log
        self._database = database
        self._loading: Awaitable[Work | None] | None = loading
        self._stop: Stop | None = None
        self._suspends = False  # the rows may be written already
        self._in_loop: asyncio.Task[None] | None = None
        self._builder = ResponseBuilder(id=claim.turn_id, model="")
        self._model: Route | None = None  # the route that is tried first
        self._tools: Mapping[str, Tool] = {}
        self._inputs = 0  # number of the turn's own items
        self._route: Route | None = None  # route of the last call
        self._steps = 0  # provider calls
        self._committed = 0  # items of the response that are stored
        #: Their proofs by item id, which their provider needs back with them.
        self._proofs: Mapping[str, ProviderData] = {}
        self._calls_made: Sequence[CallMade] = ()
        self._call: Call | None = None  # the last provider call, until it is stored
        self._call_after = 0  # items that were stored when it began
        #: A response of an earlier run that its provider continues, until a new call
        #: replaces it.
        self._pending: ProviderResponse | None = None
        self._pending_kept: ProviderResponse | None = None  # as in the last snapshot
        self._limits_owner: str | None = None  # user to charge without a token
        self._cost_left: Decimal | None = None  # USD, of the message; None: no bound
        self._abandoned: frozenset[str] = frozenset()  # ids of calls
        self._writes = 0  # writes in progress
        self._snapshot_at = 0  # number of events published at the last snapshot
        self._snapshot_due = 0.0  # when the next snapshot may be taken
        self._wake_background = wake_background
        self._endings = endings
        self._holds_ending = False
        #: Rows of results that are being delivered, by the id of their item.
        self._delivering: Mapping[str, int] = {}
        #: By question; None if there was no question yet.
        self._decided: dict[str, asyncio.Event] | None = None

    async def main(self) -> None:
        """Raises only CancelledError; an internal error ends the turn as failed."""
        try:
            if (task := await self._begin()) is not None:
                await self._respond(task)
        except Fenced:
            logger.warning("turn %s was taken over", self.claim.turn_id)
        except (OperationalError, InterfaceError) as exc:
            # The rows are as last committed; the run that claims the turn after the
            # lease has expired continues from there.
            report_full(exc)
            logger.warning("turn %s is left: %s", self.claim.turn_id, where(exc))
        except Exception as exc:
            if report_full(exc):  # a full disk while writing a file: as above
                logger.warning("turn %s is left: %s", self.claim.turn_id, where(exc))
                return
            logger.error("turn %s failed: %s", self.claim.turn_id, where(exc))
            await self._fail_safely()
        finally:
            self._leave_ending()

    def cancel(self, reason: Stop = "cancelled") -> None:
        """Stop in any phase. The first reason counts."""
        if self._stop is not None or self._builder.ended:
            return
        if reason == "fenced" and self._suspends:
            return  # suspending is why a heartbeat finds no run
        self._stop = reason
        if self._in_loop is not None:
            self._in_loop.cancel()

    def ring(self) -> None:
        """The deadline has passed; called by the timer, see `llm.clock`."""
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
        is_news = sequence != self._snapshot_at or pending != self._pending_kept
        if not is_news or now < self._snapshot_due:
            return None
        said = self._uncommitted()
        length = _length(said)
        self._snapshot_due = now + length / PACE
        self.is_long = length > LONG
        if length > LONGEST:
            return None
        self._snapshot_at, self._pending_kept = sequence, pending
        self.has_progressed |= length > self._said_before
        return Snapshot(
            said,
            sequence - 1,
            is_long=self.is_long,
            is_progress=self.has_progressed,
            provider_response=pending,
        )

    def _pending_response(self) -> ProviderResponse | None:
        """The response that a later run may resume: its end is not stored."""
        call = self._call
        if call is not None and call.background is not None:
            return ProviderResponse(call.background, self._call_after)
        return self._pending

    def _uncommitted(self) -> Sequence[Item]:
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
        self.has_news = work.has_news
        if self._stop == "released":  # before the run has done anything
            partial, left = work.task.partial, work.pending
            await self._database.write(rows.release, self.claim, partial, [], left)
        if self._stop in ("released", "fenced"):
            return None
        self._tell_beginning(work)
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

    def _tell_beginning(self, work: Work) -> None:
        self._limits_owner = work.limits_owner
        if work.meter:
            work.meter.database = self._database
        self._model, self._inputs = work.route, work.inputs
        self._cost_left, self._pending = work.cost_left, work.pending
        self._said_before = _length(work.task.partial)
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
        told = work.told if self.claim.epoch > 1 else None
        self._publish(events, told)

    def _task(self, work: Work) -> Task:
        """The task with the callbacks of this run."""
        task, gather = work.task, None
        if work.gathering.sources:
            gather = partial(self._gather, work.gathering, work.prepare)
        context = replace(task.context, ask=self.ask, abandoned=self._note_abandoned)
        return replace(
            task,
            prepare=partial(self._prepare, task.prepare),
            context=context,
            gather=gather,
            is_spent=self._has_spent_all,
            closing=self._enter_ending,
        )

    async def _enter_ending(self) -> None:
        """Wait for the slot: many large answers that end together would all be held
        whole, and encoded, at once."""
        if self._endings is not None and not self._holds_ending:
            await self._endings.acquire()
            self._holds_ending = True

    def _leave_ending(self) -> None:
        if self._endings is not None and self._holds_ending:
            self._holds_ending = False
            self._endings.release()

    def _prepare(
        self, prepare: Callable[[Sequence[Item]], Request], answered: Sequence[Item]
    ) -> Request:
        """A request with the proofs of this turn's own items. Without them Anthropic
        pauses for ever, and a model that has called a tool repeats its reasoning."""
        return prepare([self._proven(item) for item in answered])

    def _proven(self, item: Item) -> Item:
        proof = self._proofs.get(item["id"]) or self._proof(item)
        return {**item, "provider_data": proof} if proof else item

    def _has_spent_all(self) -> bool:
        return self._cost_left is not None and self._cost_left <= 0

    def _note_abandoned(self, call_id: str) -> None:
        self._abandoned |= {call_id}

    async def _respond(self, task: Task) -> None:
        self._in_loop = asyncio.current_task()
        deadline = bell()
        self.until = deadline.loop.time() + self._time_left()
        deadline.add(self)
        batches = respond(
            task,
            builder=self._builder,
            record=self,
            stop_reason=self._why_stopped,
            tell=self._publish,
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
            deadline.drop(self)
        await _absorb_late_cancel()
        if self._stop == "released":
            said = self._uncommitted()
            made, self._calls_made = self._calls_made, ()
            pending = self._pending_response()
            await self._database.write(rows.release, self.claim, said, made, pending)
        elif self._stop != "fenced" and ending:  # otherwise the turn waits for a person
            await self._finish(ending)

    def _why_stopped(self) -> Stop:
        return self._stop or "cancelled"

    async def _gather(
        self, known: gathering.Gathering, prepare: Callable[..., Request]
    ) -> Gathered:
        """Read the context, and store it before the model gets it. Raises
        StaleEpoch."""
        found = await render(known.sources, known.reader)
        await self._shielded(gathering.keep, self.claim, found)
        blocks = [ContextBlock(e.source.title, e.text) for e in found if not e.reason]
        return Gathered(
            partial(self._prepare, partial(prepare, context=blocks)),
            [{"source": e.source.name, "reason": e.reason} for e in found if e.reason],
        )

    async def _finish(self, ending: list[Event]) -> None:
        """Store the rows first, then publish the terminal event."""
        response, pending = ending[-1]["response"], self._pending_response()
        self.next_turn = await self._database.write(
            rows.finish,
            self.claim,
            Ending(
                status=_status(response),
                response=response,
                error=to_keep(ending),
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
                "turn %s could not be ended: %s", self.claim.turn_id, where(exc)
            )

    # Methods of `loop.Record`

    async def called(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        try:
            await self._advance(executing=calls, background=background)
        finally:  # a Stop may come between the commit and here; the calls end then
            if background:
                self._wake_background()

    async def answered(self, outcomes: Sequence[Outcome], *, last: bool) -> None:
        await self._advance(outcomes=outcomes, items=last)
        if any(outcome.accepted for outcome in outcomes):
            self._wake_background()

    async def arrived(self) -> Sequence[Item]:
        self.has_news = False
        conversation = self.claim.conversation_id
        found = await self._database.read(background_rows.arrived, conversation)
        self._delivering = {item["id"]: pk for pk, item in found}
        return [item for _, item in found]

    async def waits(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        asked = [(call, question_of(call, self._tools)) for call in calls]
        progress = self._progress()
        self._suspends = True
        left = self.until - asyncio.get_running_loop().time()
        found = await self._shielded(rows.suspend, self.claim, progress, asked, left)
        if not found:
            self.next_turn = self.claim.turn_id  # this turn, once more
        by_id = {call["call_id"]: call for call in calls}
        return [told_question(row, by_id[row.tool_call.call_id]) for row in found]

    async def ask(
        self, context: Context, message: str, schema: Mapping[str, Any]
    ) -> Answer:
        """Show a form to the subscribers, and wait for the answer. Raises
        StaleEpoch."""
        asked = Asked(kind=Question.Kind.FORM, message=message, schema=schema)
        question = await self._database.write(
            rows.ask, self.claim, context.call_id, asked
        )
        call = self._call_of(context.call_id)
        self._publish(
            self._builder.extension(
                "parley:approval.requested", question=told_question(question, call)
            )
        )
        self._stop_clock()
        try:
            answer = await self._answer(question)
        except asyncio.CancelledError:
            self._database.write(rows.withdraw, question.pk)
            raise
        finally:
            self._start_clock()
        self._publish(
            self._builder.extension(
                "parley:question.closed", id=question.pk, state=answer.state
            )
        )
        if answer.state == Question.State.ACCEPTED:
            return Answer("accept", answer.answer or {})
        is_declined = answer.state == Question.State.DECLINED
        return Answer("decline" if is_declined else "cancel")

    def _stop_clock(self) -> None:
        """Stop the turn's deadline while a person is asked."""
        self._asking += 1
        if self._asking == 1:
            self._seconds_left = self.until - bell().loop.time()
            self.until = math.inf
            self._note_clock(rows.stop_clock)

    def _start_clock(self) -> None:
        self._asking -= 1
        if not self._asking:
            deadline = bell()
            self.until = deadline.loop.time() + self._seconds_left
            deadline.by(self.until)
            self._note_clock(rows.start_clock)

    def _note_clock(self, write: Callable[[Claim, float], None]) -> None:
        """Not awaited: a fenced run finds out with its next write."""
        writing = self._database.write(write, self.claim, self._seconds_left)
        writing.add_done_callback(_retrieve)

    async def _answer(self, question: Question) -> Question:
        """Wait for a notification or poll the row, whichever finds the answer first."""
        waiting = self._decided = {} if self._decided is None else self._decided
        decided = waiting[question.pk] = asyncio.Event()
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(decided.wait(), LOOK)
                found = await self._database.read(rows.decided, question.pk)
                if found is not None:
                    return found
                decided.clear()
        finally:
            del waiting[question.pk]

    def decided(self, question_id: str) -> None:
        """Receive the notification that a person has answered."""
        if waiting := (self._decided or {}).get(question_id):
            waiting.set()

    def _call_of(self, call_id: str) -> Item:
        return next(i for i in self._builder.output if i.get("call_id") == call_id)

    def asks(self, call: Call) -> None:
        self._leave_ending()
        self._call, self._call_after = call, self._committed

    def asked(self, call: Call) -> None:
        builder, model = self._builder, self._model
        assert model is not None
        self._route = call.route or model
        new = [
            CallMade(
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

    def _charge(self, calls: Sequence[CallMade]) -> None:
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
        outcomes: Sequence[Outcome] = (),
        items: bool = True,
    ) -> None:
        progress = self._progress(executing, background, outcomes, items)
        await self._shielded(rows.advance, self.claim, progress)
        self.has_progressed |= bool(progress.items or progress.outcomes)
        if progress.items:
            self._call = self._pending = None
            self._leave_ending()

    async def _shielded(self, function: Callable[..., T], *args: Any) -> T:
        """Raises StaleEpoch. Raises CancelledError while the write continues all the
        same."""
        writing = asyncio.ensure_future(self._database.write(function, *args))
        self._writes += 1
        writing.add_done_callback(self._is_written)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(_retrieve)
            raise

    def _is_written(self, writing: asyncio.Future[Any]) -> None:
        self._writes -= 1

    def _progress(
        self,
        executing: Sequence[Item] = (),
        background: Collection[str] = (),
        outcomes: Sequence[Outcome] = (),
        items: bool = True,
    ) -> Progress:
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
        return Progress(
            items=[
                (item, proofs.get(item["id"]), told)
                for item, told in zip(new, builder.done_at[first:], strict=False)
            ],
            first_position=self._inputs + first,
            last_sequence=builder.sequence - 1,
            calls_made=made,
            executing=executing,
            background=background,
            delivered=delivered,
            outcomes=outcomes,
            is_durable=self._has_once(executing, outcomes),
            usage=builder.usage,
            ended_output=builder.ended_output,
        )

    def _has_once(self, calls: Sequence[Item], outcomes: Sequence[Outcome]) -> bool:
        names = [call["name"] for call in calls]
        names += [self._call_of(outcome.call_id)["name"] for outcome in outcomes]
        found = [self._tools.get(known_name(name, self._tools)) for name in names]
        return any(tool is not None and tool.replay == "once" for tool in found)

    def _proof(self, item: Item) -> ProviderData | None:
        raw = self._builder.proofs.get(item["id"])
        route = self._route  # of the call that produced all items since the last write
        if raw is None or route is None:
            return None
        return {"issuer": route.endpoint.issuer(route.model), "raw": raw}

    # Events

    def _publish(
        self, events: list[Event], told: Mapping[int, Position] | None = None
    ) -> None:
        if self._stop == "fenced":
            return
        if faults.IS_ARMED:
            faults.at("append:before")
        self._log.append(self.claim.epoch, events, told)
        if faults.IS_ARMED:
            faults.at("append:after")


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


def _retrieve(writing: asyncio.Future[Any]) -> None:
    """Log the error of a write that is no longer awaited; a later write meets the same
    fence."""
    exc = None if writing.cancelled() else writing.exception()
    if exc and not isinstance(exc, Fenced):
        logger.error("a write failed after a stop: %s", type(exc).__name__)


def _status(response: Mapping[str, Any]) -> str:
    if (response["incomplete_details"] or {}).get("reason") == "cancelled":
        return Turn.Status.CANCELLED
    status: str = response["status"]
    return status
