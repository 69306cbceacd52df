"""Runner of background calls: tool calls whose results the model does not wait for.

All state is in the rows, so any process can continue a call: it starts calls that no
process runs, polls work that goes on elsewhere when it is due, and ends calls that took
too long or were cancelled. One loop looks for such calls; notifications make it look at
once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import TypeVar

from django.conf import settings
from django.db import Error as DatabaseError

from conversations.engine import background_store as rows
from conversations.engine.background_store import CallClaim, CallWork, ConcludedCall
from conversations.engine.database.executor import (
    Database,
    DatabaseClosed,
    is_database_unavailable,
)
from conversations.engine.runs.full_outputs import send_to_bucket
from llm.telemetry import log_context, tracing
from tools.execute import CallOutcome, CallProgress, execute, format_trace
from tools.loop.late_results import poll_for
from tools.registry import RuntimeTool

logger = logging.getLogger(__name__)

BATCH_SIZE = 50  # calls that one sweep starts; brief ones may exceed the limit by it
TRIES = 5  # retries of a write that the database refuses, before it is given up
#: Heartbeats that succeed while a write is refused as if in an outage. After so many of
#: them the database works, so the write would never succeed.
MOST_HEARTBEATS = 60
FIRST_PAUSE, BACKOFF = 0.1, 1.0  # seconds between two attempts, at first and at most
T = TypeVar("T")
V = TypeVar("V")


class BackgroundCalls:
    """The background calls that run in this process. Create it on the engine's event
    loop.

    `submit` takes the ids of a new turn and of its conversation. `notify_result` takes
    the id of a conversation whose open turn has a new result to deliver.
    """

    def __init__(
        self,
        database: Database,
        *,
        submit: Callable[[str, str], None],
        notify_result: Callable[[str], None],
    ) -> None:
        self._database = database
        self._submit = submit
        self._notify_result = notify_result
        self._running: dict[CallClaim, asyncio.Task[None]] = {}
        self._progress: dict[CallClaim, str] = {}
        self._stopped: set[CallClaim] = set()  # by a person
        self._abandoned: set[CallClaim] = set()  # given up, but their threads still run
        self._sweep_task: asyncio.Task[None] | None = None
        self._sweep_again = False
        self._heartbeats = 0  # that the database has taken
        self._is_full = False  # the last sweep may have left calls for want of room
        self._draining = False

    def wake(self) -> None:
        """Look for calls to start, now."""
        self._sweep_again = True
        if not self._draining and (self._sweep_task is None or self._sweep_task.done()):
            self._sweep_task = asyncio.create_task(
                self._sweep_while_woken(), context=Context()
            )

    async def beat(self) -> None:
        """Renew the leases; cancel calls that another process has claimed or a person
        has cancelled. A heartbeat, at most every second."""
        await self._renew_leases()
        self._heartbeats += 1

    async def _renew_leases(self) -> None:
        if not self._running:
            return
        beats = {claim: self._progress.get(claim, "") for claim in self._running}
        lost, stopped = await self._database.beat(rows.renew, beats)
        newly = set(stopped) - self._stopped
        self._stopped |= newly
        for claim in [*lost, *newly]:
            if task := self._running.get(claim):
                task.cancel()

    async def sweep(self) -> None:
        """Start the calls that no process runs."""
        if self._draining:
            return
        for pk in await self._find_due():
            if not self._draining:
                await self._try_to_start(pk)
        await self._open_turns()

    async def _try_to_start(self, pk: int) -> None:
        """The calls behind one whose row the database refuses do not wait for it."""
        try:
            await self._start_call(pk)
        except DatabaseError as exc:
            if is_database_unavailable(exc):
                raise
            text = "background call %d cannot be claimed: %s"
            logger.error(text, pk, type(exc).__name__)

    async def _find_due(self) -> list[int]:
        """As many as there is room for. What ends a call, or polls for its result, does
        not wait behind calls that run for hours."""
        room = settings.MAX_BACKGROUND_CALLS - len(self._running)
        if room > 0:
            due = await self._database.read(rows.find_due, min(room, BATCH_SIZE))
            self._is_full = len(due) == room
            return due
        self._is_full = True
        if (room := room + BATCH_SIZE) <= 0:
            return []
        find = partial(rows.find_due, only_brief=True)
        return await self._database.read(find, room)

    async def _open_turns(self) -> None:
        """One by one: none waits for the locks of another conversation."""
        find = rows.find_conversations_to_wake
        for conversation_id in await self._database.read(find, BATCH_SIZE):
            turn_id = await self._database.write(rows.wake, conversation_id)
            if turn_id is not None:
                self._submit(turn_id, conversation_id)

    def begin_drain(self) -> list[asyncio.Task[None]]:
        """Start no more calls. Returns the tasks that still run."""
        self._draining = True
        return list(self._running.values())

    async def drain(self) -> None:
        """Cancel the running calls and release them to other processes."""
        tasks = self.begin_drain()
        claims = list(self._running)
        if self._sweep_task:
            tasks.append(self._sweep_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if claims:
            await self._database.write(rows.release, claims)

    async def _sweep_while_woken(self) -> None:
        while self._sweep_again and not self._draining:
            self._sweep_again = False
            try:
                await self._renew_leases()
                await self.sweep()
            except DatabaseError as exc:
                logger.warning(
                    "background calls could not be checked: %s", type(exc).__name__
                )

    async def _start_call(self, pk: int) -> None:
        claim = await self._database.write(rows.claim, pk)
        if claim is None:
            return
        # Without the request, trace and language of what happens to start it.
        task = asyncio.create_task(self._run_call(claim), context=Context())
        self._running[claim] = task
        task.add_done_callback(lambda _: self._forget(claim))

    def _forget(self, claim: CallClaim) -> None:
        self._running.pop(claim, None)
        self._progress.pop(claim, None)
        self._stopped.discard(claim)
        self._abandoned.discard(claim)
        if self._is_full:  # others may wait for the room
            self._is_full = False
            self.wake()

    async def _run_call(self, claim: CallClaim) -> None:
        try:
            work = await self._database.read(rows.load, claim)
            _continue_trace(work)
            outcome = work.outcome or await self._outcome(claim, work)
            await self._conclude(claim, outcome)
        except asyncio.CancelledError:
            if claim not in self._stopped:
                raise  # released, or claimed by another process
            self._uncancel()
            await self._conclude(
                claim, _outcome_of_cancel(is_over=claim not in self._abandoned)
            )
        except Exception as exc:
            # After the lease has expired, a sweep takes the call up again.
            logger.error("background call %d failed: %s", claim.pk, format_trace(exc))

    @staticmethod
    def _uncancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()

    async def _outcome(self, claim: CallClaim, work: CallWork) -> CallOutcome:
        tools = {name: _with_time_left(tool, work) for name, tool in work.tools.items()}
        context = replace(
            work.context, abandoned=lambda call_id: self._abandoned.add(claim)
        )
        happenings = execute([work.call], tools, context)
        async with aclosing(happenings):
            async for happening in happenings:
                if isinstance(happening, CallProgress):
                    self._progress[claim] = happening.message
                elif isinstance(happening, CallOutcome):
                    return happening
        raise AssertionError("a call has one outcome")

    async def _conclude(self, claim: CallClaim, outcome: CallOutcome) -> None:
        if outcome.accepted is not None:
            record = rows.record_accepted
            await self._write_with_retries(record, claim, outcome.accepted)
            return
        concluded = await self._write_with_retries(rows.conclude, claim, outcome)
        if concluded is not None:
            self.dispatch_result(concluded)
            send_to_bucket(concluded.conversation_id, [outcome])

    def dispatch_result(self, concluded: ConcludedCall) -> None:
        """Deliver a stored result to the model. Call it on the engine's loop."""
        if concluded.new_turn:
            self._submit(concluded.new_turn, concluded.conversation_id)
        else:
            self._notify_result(concluded.conversation_id)

    async def _write_with_retries(
        self, write: Callable[[CallClaim, V], T], claim: CallClaim, value: V
    ) -> T:
        """Retry the write for as long as the database is unavailable: the work is done,
        and its result must not be lost. A drain or a lost lease cancels this task."""
        failures, pause, begun_at = 0, FIRST_PAUSE, self._heartbeats
        while True:
            try:
                return await self._database.write(write, claim, value)
            except DatabaseClosed:
                raise
            except DatabaseError as exc:
                if failures >= TRIES and not is_database_unavailable(exc):
                    raise
                if self._heartbeats - begun_at >= MOST_HEARTBEATS:
                    raise
                if not failures:
                    text = "result of background call %d is not stored yet: %s"
                    logger.warning(text, claim.pk, type(exc).__name__)
            await asyncio.sleep(pause)
            failures, pause = failures + 1, min(2 * pause, BACKOFF)


def _continue_trace(work: CallWork) -> None:
    """Of the request that the call's turn answers, in this task."""
    log_context.turn_id.set(work.context.turn_id)
    log_context.request_id.set(work.caller.request_id)
    if tracing.spans is not None:
        tracing.spans.continue_trace(work.caller.trace_parent)


def _with_time_left(tool: RuntimeTool, work: CallWork) -> RuntimeTool:
    """The tool with the remaining time as its timeout; a call that was accepted
    elsewhere polls for its result instead of running."""
    seconds = max(work.seconds_left, 0.001)
    if work.token is None:
        return replace(tool, timeout=seconds)
    return replace(tool, timeout=seconds, call=poll_for(tool, work.token))


def _outcome_of_cancel(*, is_over: bool) -> CallOutcome:
    state, text = "cancelled", "A person cancelled this call."
    if not is_over:
        state = "abandoned"
        text += " Its thread cannot be stopped: what it does may still take effect."
    return CallOutcome("", state, f"Error: {text}", text, 0.0)
