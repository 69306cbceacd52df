"""What a run writes: its events into the log, and the rows of its calls, outcomes,
suspension and end; and its deadline, which stops while a person is asked."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from conversations.access.admission import charge_user_tokens
from conversations.context import Rendering
from conversations.engine import question_store, turn_store
from conversations.engine.claim_store import Claim
from conversations.engine.database.executor import Database
from conversations.engine.event_log import Position, Publisher
from conversations.engine.lease_store import ProviderResponse
from conversations.engine.loading import turn_context
from conversations.engine.loading.approvals import question_of, question_payload
from conversations.engine.loading.late_results import load_results
from conversations.engine.process import crash_points
from conversations.engine.process.turn_metrics import count_turn
from conversations.engine.progress_store import FinishedModelCall
from conversations.engine.runs.full_outputs import send_to_bucket
from conversations.engine.runs.large_answer_limits import LargeAnswer
from conversations.engine.runs.state import RunState
from conversations.engine.runs.writes import RunWrites
from conversations.engine.turn_store import Ending
from conversations.models import Turn
from conversations.turns import waiting_messages
from llm.http.client import ProviderCall
from llm.http.timers import deadline_timer
from llm.pricing.usage_estimate import billed_tokens
from llm.wire.facades.errors import error_to_store
from llm.wire.items import Event, Item
from tools.execute import CallOutcome
from tools.loop.late_results import LateResult, SteeringMessage


@dataclass(slots=True, eq=False, repr=False)
class RunEvents:
    """Appends a run's events to the log."""

    state: RunState
    log: Publisher

    def publish(
        self,
        events: list[Event],
        earlier_positions: Mapping[int, Position] | None = None,
    ) -> None:
        """Append the events to the log, unless another run has claimed the turn."""
        if self.state.stop == "fenced":
            return
        if crash_points.IS_ARMED:
            crash_points.reach("append:before")
        self.log.append(self.state.claim.epoch, events, earlier_positions)
        if crash_points.IS_ARMED:
            crash_points.reach("append:after")

    def publish_ending(self, events: list[Event]) -> None:
        """Append the last events, whose rows are stored."""
        self.log.append(self.state.claim.epoch, events)


@dataclass(slots=True, eq=False, repr=False)
class TurnClock:
    """A `timers.TimedOperation` that stops the run at the turn's deadline."""

    state: RunState
    writes: RunWrites
    until: float = math.inf  # event loop time of the deadline
    _open_forms: int = 0
    _seconds_left: float = 0.0  # until the deadline, while forms are open

    def begin(self, seconds: float) -> None:
        deadline = deadline_timer.of[asyncio.get_running_loop()]
        self.until = deadline.loop.time() + seconds
        deadline.add(self)

    def end(self) -> None:
        deadline_timer().remove(self)

    @property
    def seconds_left(self) -> float:
        """Until the deadline; 0 once it has passed."""
        if self._open_forms:
            return self._seconds_left
        left = self.until - asyncio.get_running_loop().time()
        return 0.0 if math.isinf(left) else left

    def on_timer(self) -> None:
        """The deadline has passed."""
        self.until = math.inf
        self.state.cancel("deadline")

    def stop(self) -> None:
        """Stop while a form is open; several may be."""
        self._open_forms += 1
        if self._open_forms == 1:
            self._seconds_left = self.until - deadline_timer().loop.time()
            self.until = math.inf
            self._save(question_store.stop_clock)

    def start(self) -> None:
        """Start again once no form is open."""
        self._open_forms -= 1
        if not self._open_forms:
            deadline = deadline_timer()
            self.until = deadline.loop.time() + self._seconds_left
            deadline.fire_by(self.until)
            self._save(question_store.start_clock)

    def _save(self, write: Callable[[Claim, float], None]) -> None:
        self.writes.write_later(write, self.state.claim, self._seconds_left)


@dataclass(slots=True, eq=False, repr=False)
class RunRecord:
    """A `tools.loop.task.Record`, and the writes of the run itself."""

    state: RunState
    database: Database
    writes: RunWrites
    clock: TurnClock
    large_answer: LargeAnswer
    wake_background: Callable[[], None]
    has_new_results: bool = False  # new background results may be stored

    # Methods of `tools.loop.task.Record`

    async def save_calls(
        self, calls: Sequence[Item], *, background: Collection[str]
    ) -> None:
        try:
            await self._advance(executing=calls, background=background)
        finally:  # a Stop may come between the commit and here; the calls end then
            if background:
                self.wake_background()

    async def save_outcomes(
        self, outcomes: Sequence[CallOutcome], *, last: bool
    ) -> None:
        conversation_id = self.state.claim.conversation_id
        try:
            await self._advance(outcomes=outcomes, items=last)
        except asyncio.CancelledError:  # the write continues
            send_to_bucket(conversation_id, outcomes)
            raise
        send_to_bucket(conversation_id, outcomes)
        if any(outcome.accepted for outcome in outcomes):
            self.wake_background()

    async def fetch_results(self) -> Sequence[LateResult | SteeringMessage]:
        self.has_new_results = False
        turn_id = self.state.claim.turn_id
        found = await self.database.read(load_results, turn_id)
        self.state.delivering = {result.item["id"]: pk for pk, result in found}
        return [*(result for _, result in found), *await self._take_messages()]

    async def _take_messages(self) -> Sequence[SteeringMessage]:
        """The messages that steer this turn; their senders cannot change them now."""
        claim = self.state.claim
        if not await self.database.read(
            waiting_messages.has_steering, claim.conversation_id
        ):
            return ()
        taken = await self.writes.write(
            waiting_messages.take, claim.turn_id, claim.conversation_id
        )
        self.state.steering = {
            item["id"]: turn_id for turn_id, items in taken for item in items
        }
        return [SteeringMessage(item) for _, items in taken for item in items]

    async def suspend(self, calls: Sequence[Item]) -> Sequence[dict[str, Any]]:
        state = self.state
        new_questions = [
            (state.by_tool_name(call), question_of(call, state.tools)) for call in calls
        ]
        progress = state.take_progress()
        state.is_suspending = True
        left = self.clock.seconds_left
        found = await self.writes.write(
            question_store.suspend, state.claim, progress, new_questions, left
        )
        if not found:
            state.next_turns = [state.claim.turn_id]  # this turn, once more
        by_id = {call["call_id"]: call for call in calls}
        return [question_payload(row, by_id[row.tool_call.call_id]) for row in found]

    def begin_model_call(self, call: ProviderCall) -> None:
        if self.large_answer.needs_release:
            self.large_answer.release()
        self.state.call, self.state.call_after = call, self.state.committed

    def record_model_call(self, call: ProviderCall) -> None:
        self._charge(self.state.end_model_call(call))

    def _charge(self, calls: Sequence[FinishedModelCall]) -> None:
        """Charge the tokens of the calls to the per-minute limit of a user without an
        access token."""
        owner = self.state.limits_owner
        used = [made.call.usage for made in calls if made.call.usage]
        amount = sum(map(billed_tokens, used))
        if owner is None or not amount:
            return
        if settings.IS_SCALED:  # a server is called, so in a thread
            self.database.read(charge_user_tokens, owner, amount)
        else:
            charge_user_tokens(owner, amount)

    async def _advance(
        self,
        *,
        executing: Sequence[Item] = (),
        background: Collection[str] = (),
        outcomes: Sequence[CallOutcome] = (),
        items: bool = True,
    ) -> None:
        state = self.state
        progress = state.take_progress(executing, background, outcomes, items)
        await self.writes.write(turn_store.advance, state.claim, progress)
        state.has_progressed |= bool(progress.items or progress.outcomes)
        if progress.items:
            state.call = state.pending = None
            self.large_answer.release()

    # Writes of the run

    async def save_context(self, found: Sequence[Rendering]) -> None:
        """Raises StaleEpoch."""
        await self.writes.write(turn_context.save_context, self.state.claim, found)

    async def wait_again(self, seconds_left: float) -> Sequence[dict[str, Any]]:
        """Let the turn wait again for the decisions for which it waited before this
        run. Returns the open questions. Raises StaleEpoch."""
        state = self.state
        state.is_suspending = True
        last = state.builder.sequence - 1
        found = await self.database.write(
            question_store.wait_again, state.claim, last, seconds_left
        )
        if not found:
            state.next_turns = [state.claim.turn_id]  # this turn, once more
        return [
            question_payload(row, state.find_call(row.tool_call.call_id))
            for row in found
        ]

    async def postpone(self) -> None:
        """Let another run try again once the lease has expired."""
        await self.database.write(turn_store.postpone, self.state.claim)

    async def finish(self, ending: list[Event]) -> None:
        """Store the end of the turn. Raises StaleEpoch and NotEnded."""
        state, response = self.state, ending[-1]["response"]
        progress = state.take_progress(outcomes=state.unwritten)
        try:
            state.next_turns = await self.database.write(
                turn_store.finish,
                state.claim,
                Ending(
                    status=_status(response),
                    response=response,
                    error=error_to_store(ending),
                    last_sequence=ending[-1]["sequence_number"],
                    called=any(
                        item["type"] == "function_call" for item in response["output"]
                    ),
                    progress=progress,
                    abandoned=state.abandoned,
                    preset_version=state.preset_version,
                ),
            )
        except Exception:
            state.give_back(progress)
            raise
        state.ended_as = _status(response)
        count_turn(
            state.ended_as,
            created_at=state.created_at,
            began_at=state.began_at,
            epoch=state.claim.epoch,
        )

    async def release(
        self,
        partial: Sequence[Item],
        pending: ProviderResponse | None,
        seconds_left: float,
    ) -> None:
        """Let another run continue at once, with these uncommitted items."""
        claim, made = self.state.claim, self.state.take_calls_made()
        try:
            await self.database.write(
                turn_store.release, claim, partial, made, pending, seconds_left
            )
        except Exception:
            self.state.calls_made = made
            raise


def _status(response: Mapping[str, Any]) -> str:
    if (response["incomplete_details"] or {}).get("reason") == "cancelled":
        return Turn.Status.CANCELLED
    status: str = response["status"]
    return status
