"""The dispatcher: queues turns, claims them when there is room, and runs them."""

from __future__ import annotations

import asyncio
import logging
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Sequence
from functools import partial

from django.conf import settings

from conversations.access import overload
from conversations.engine.claim_store import Claim
from conversations.engine.database.executor import Database
from conversations.engine.event_log import EventLog
from conversations.engine.loading.loaded_turn import Work
from conversations.engine.loading.turn_loader import (
    ClaimAttempt,
    claim_and_load,
    load_claimed,
    open_and_claim,
)
from conversations.engine.maintenance.titles import may_title, write_title
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.process.fair_slots import FairSlots
from conversations.engine.runs.large_answer_limits import LargeAnswers
from conversations.engine.runs.run import Run
from conversations.engine.runs.state import Stop
from conversations.engine.suspect_turns import SuspectGate
from conversations.models import OpenedTurn, Turn
from llm.db.outages import UNREACHABLE
from llm.telemetry import log_context
from tools.execute import format_trace

logger = logging.getLogger(__name__)

#: Turns that are opened, claimed or loaded at once. The others wait for their place,
#: not in the queue of the database threads, where heartbeats and writes of running
#: turns would wait behind them. Four keep one or two threads busy (decision 18).
MAX_STARTS = 4

MAX_CONVERSATIONS = 10_000  # that are remembered


class Dispatcher:
    """The turns that this process has queued or runs. Create it on the event loop."""

    def __init__(
        self,
        tasks: EngineTasks,
        log: EventLog,
        database: Database,
        wake_background: Callable[[], None],
    ) -> None:
        self.runs: dict[str, Run] = {}
        #: Turns that are claimed or loaded and have no run yet. Their leases are
        #: renewed too: a long conversation may take longer to load.
        self.loading: dict[str, ClaimAttempt] = {}
        #: Turns that have a task, with a future that is resolved once it is known
        #: whether this process runs the turn; None afterwards.
        self.active_turns: dict[str, asyncio.Future[None] | None] = {}
        self.max_runs: int = settings.TURN_CONCURRENCY
        self.slots = FairSlots(self.max_runs)
        self.drains = False  # staff let it start no more turns, for now
        self.gate = SuspectGate()
        self.starts = FairSlots(MAX_STARTS)  # served by owner
        overload.load.start_wait = self._estimate_start_wait
        overload.load.waiting_turns = self._count_waiting
        self._tasks = tasks
        self._log = log
        self._database = database
        self._wake_background = wake_background  # one bound method for all runs
        self._large_answers = LargeAnswers()
        #: Conversations whose turns have run here, in the order of their last turns.
        self._conversations: dict[str, None] = {}
        #: Active turns that were stopped before they had a run, and why.
        self._to_stop: dict[str, Stop] = {}
        #: Of turns that wait for room; resolved when the turn is stopped.
        self._stop_signals: dict[str, asyncio.Future[None]] = {}

    # Queue

    def put(
        self,
        turn_id: str,
        opened: OpenedTurn | None = None,
        owner: int | None = None,
    ) -> None:
        """Run the turn as soon as there is room. A second call does nothing. `owner`:
        the user behind whose other turns it waits; without one, it waits as if it were
        its user's only turn."""
        if self._is_closed or turn_id in self.active_turns:
            return
        self._queue(ClaimAttempt(turn_id, opened=opened, owner=owner))

    def put_alone(self, turn_id: str, *, is_repeated: bool) -> None:
        """Run a suspect; `is_repeated` if it was one before (`suspects`)."""
        self.gate.note_waiting()
        if self._is_closed or turn_id in self.active_turns:
            return
        waits = bool(self.active_turns) if is_repeated else self._has_unproductive()
        if self.gate.close_for(turn_id, must_wait=waits):
            self._queue(ClaimAttempt(turn_id, is_alone=True))

    @property
    def _is_closed(self) -> bool:
        return self.drains or self._tasks.draining

    def _queue(self, attempt: ClaimAttempt) -> None:
        self.active_turns[attempt.turn_id] = self._tasks.loop.create_future()
        self._tasks.create(self._process_turn(attempt), name="queued")

    def _has_unproductive(self) -> bool:
        """Whether a turn that has not progressed yet is active here."""
        runs = map(self.runs.get, self.active_turns)
        return any(run is None or not run.state.has_progressed for run in runs)

    def open_gate(self) -> None:
        """Let other turns start once the suspect has progressed or takes too long."""
        run = self.runs.get(self.gate.suspect)
        self.gate.open_after(
            has_progressed=run is not None and run.state.has_progressed
        )

    def _estimate_start_wait(self) -> float:
        # Turns differ too much in length to predict when a slot becomes free.
        return max(self.starts.expected_wait, self.slots.longest_wait)

    def _count_waiting(self) -> int:
        return self.starts.waiting + self.slots.waiting

    async def open(self, open_turn: Callable[[], OpenedTurn]) -> tuple[Turn, bool]:
        """Open a turn, and claim it in the same transaction if there is room. Returns
        whether it runs here. The caller has one of the `starts`."""
        if self._is_closed or self.slots.locked() or not self.gate.is_open:
            return (await self._database.write(open_turn)).turn, False
        attempt = ClaimAttempt()
        await self.slots.acquire()  # at once, and handed to the run
        try:
            opening = self._database.write(
                open_and_claim, attempt, open_turn, self.active_turns
            )
            loading = self._database.write(load_claimed, attempt)
            turn = await opening
        finally:
            if attempt.claim is None:
                self.slots.release()
        if attempt.claim is None:  # it waits for an earlier turn, or was opened before
            return turn, False
        self.active_turns[turn.pk] = self._tasks.loop.create_future()
        self._tasks.create(self._process_turn(attempt, loading), name="running")
        return turn, True

    # Runs

    def stop(self, turn_id: str) -> bool:
        """Stop the turn here; False if this process does not run it.

        A run that is about to start may have read the rows before the cancellation, so
        the turn is remembered and that run is stopped too.
        """
        if run := self.runs.get(turn_id):
            run.state.cancel()
        elif turn_id in self.active_turns:
            self._to_stop.setdefault(turn_id, "cancelled")
            if (signal := self._stop_signals.get(turn_id)) and not signal.done():
                signal.set_result(None)
        return run is not None

    def fence(self, claim: Claim) -> None:
        """End the run of a claim that another run has replaced. The other run may be in
        this process too; it goes on."""
        turn_id = claim.turn_id
        if run := self.runs.get(turn_id):
            if run.claim.epoch <= claim.epoch:
                run.state.cancel("fenced")
        elif (attempt := self.loading.get(turn_id)) and attempt.claim == claim:
            self._to_stop[turn_id] = "fenced"

    def loading_claims(self) -> list[Claim]:
        """The claims of turns that are still loaded."""
        attempts = self.loading.values()
        return [each.claim for each in attempts if each.claim is not None]

    def release_all(self) -> None:
        """Release the runs to other processes."""
        for run in list(self.runs.values()):
            run.state.cancel("released")

    async def _process_turn(
        self, attempt: ClaimAttempt, loading: asyncio.Future[Work | None] | None = None
    ) -> None:
        """Claim the turn and run it. With `loading`, the turn is already claimed and
        has a slot."""
        turn_id = attempt.turn_id
        log_context.turn_id.set(turn_id)  # in the context of this task
        next_turns: Sequence[str] = ()
        has_slot = loading is not None
        if not has_slot and (self.slots.locked() or not self.gate.is_open):
            attempt.opened = None  # it may have changed once there is room
        try:
            if not has_slot:
                has_slot = await self._wait_for_room(attempt)
            self.loading[turn_id] = attempt
            if loading is None:
                loading = await self._claim_and_load(attempt)
            run = await self._create_run(attempt, loading) if loading else None
            del attempt, loading  # frees what they hold while the answer is generated
            if run is not None:
                await run.main()
                next_turns = run.state.next_turns
                if run.state.calls_made or run.writes.abandoned:
                    lost = run.writes.record_lost_calls(self._tasks.pause)
                    self._tasks.create(lost, name="lost calls")
                self._begin_title(run)
        except UNREACHABLE as exc:
            logger.warning(
                "turn %s is left to the sweep: %s", turn_id, format_trace(exc)
            )
        finally:
            if has_slot:
                self.slots.release()
            self._forget(turn_id)
        for next_turn in next_turns:
            self.put(next_turn)

    def _begin_title(self, run: Run) -> None:
        """Let a model write the title of a new conversation, beside all turns."""
        state = run.state
        is_over = state.builder.ended and not self._tasks.draining
        # Without an owner of limits the turn is a program's, which needs no title.
        if is_over and state.limits_owner and may_title(state.model):
            title = write_title(run.claim.turn_id, self._database)
            self._tasks.create(title, name="title")

    async def _wait_for_room(self, attempt: ClaimAttempt) -> bool:
        """Wait for the gate and a slot. False, without a slot, as soon as the turn is
        stopped: it only ends then, and calls no provider."""
        turn_id = attempt.turn_id
        if turn_id in self._to_stop:
            return False
        if not self.slots.locked() and (attempt.is_alone or self.gate.is_open):
            return await self.slots.acquire()  # at once
        signal = self._stop_signals[turn_id] = self._tasks.loop.create_future()
        acquiring = self._tasks.loop.create_task(self._acquire_slot(attempt))
        try:
            await asyncio.wait((acquiring, signal), return_when=FIRST_COMPLETED)
        except asyncio.CancelledError:
            if acquiring.done():
                self.slots.release()
            raise
        finally:
            del self._stop_signals[turn_id]
            if not acquiring.done():
                acquiring.cancel()
        return acquiring.done()

    async def _acquire_slot(self, attempt: ClaimAttempt) -> None:
        if not attempt.is_alone:
            await self.gate.wait()
        await self.slots.acquire(attempt.owner or attempt.turn_id)

    async def _claim_and_load(
        self, attempt: ClaimAttempt
    ) -> asyncio.Future[Work | None] | None:
        """Claim and load the turn once fewer than MAX_STARTS turns do so; None if a
        drain has begun."""
        await self.starts.acquire(attempt.owner or attempt.turn_id)
        try:
            if self._tasks.draining:
                return None
            task = asyncio.current_task()
            assert task is not None
            task.set_name("running")  # a drain lets it end by itself
            loading = self._database.write(claim_and_load, attempt)
            await asyncio.wait([loading])
            return loading
        finally:
            self.starts.release()

    async def _create_run(
        self, attempt: ClaimAttempt, loading: asyncio.Future[Work | None]
    ) -> Run | None:
        """Create the run of a claimed turn; None if it could not be claimed."""
        await asyncio.wait([loading])
        if attempt.claim is None:
            loading.result()
            return None
        turn_id = attempt.turn_id
        run = Run(
            attempt.claim,
            self._log.open_publisher(turn_id, partial(self.fence, attempt.claim)),
            self._database,
            loading,
            self._wake_background,
            self._large_answers,
        )
        self.runs[turn_id] = run
        del self.loading[turn_id]
        conversation_id = attempt.claim.conversation_id
        self._conversations.pop(conversation_id, None)
        self._conversations[conversation_id] = None
        if len(self._conversations) > MAX_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        self._mark_admitted(turn_id)
        if (reason := self._to_stop.get(turn_id)) is not None:
            run.state.cancel(reason)
        if self._tasks.draining:
            run.state.cancel("released")
        return run

    def has_run(self, conversation_id: str) -> bool:
        """Whether a turn of the conversation has run here of late."""
        return conversation_id in self._conversations

    def _mark_admitted(self, turn_id: str) -> None:
        if (known := self.active_turns[turn_id]) is not None:
            known.set_result(None)
            self.active_turns[turn_id] = None

    def _forget(self, turn_id: str) -> None:
        self._mark_admitted(turn_id)
        self.active_turns.pop(turn_id, None)
        self.gate.end(turn_id)
        self._to_stop.pop(turn_id, None)
        self.loading.pop(turn_id, None)
        self.runs.pop(turn_id, None)
        self._log.close(turn_id)
        if log := self._log.get(turn_id):
            log.wake()  # if no run here ended the turn, subscribers read the rows
