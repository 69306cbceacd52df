"""The turn engine of one process: dispatcher, heartbeat, sweep, subscriptions.

The embedded and the scaled engine are subclasses. They differ in where events are
stored (`EventLog`), in how other processes are notified, and in how this process learns
about them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from conversations.access import budget
from conversations.access.limits.leases import FLUSH_INTERVAL
from conversations.access.limits.upkeep import return_leases, update_limits
from conversations.access.webhooks import recipients
from conversations.engine import claim_store, question_store
from conversations.engine.background_calls import BackgroundCalls
from conversations.engine.database.executor import Database
from conversations.engine.dispatcher import Dispatcher
from conversations.engine.evaluations.evaluating import Evaluations
from conversations.engine.event_log import EventLog
from conversations.engine.heartbeat import Heartbeat
from conversations.engine.maintenance.schedule import CHECK_INTERVAL, Schedule
from conversations.engine.notifications import (
    announce_branches,
    announce_decision,
    announce_queue,
    announce_title,
    announce_turn,
    open_pages,
    relays,
)
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.process.fair_turns import FairTurns
from conversations.engine.process.leased_batches import INTERVAL as BATCH_INTERVAL
from conversations.engine.process.status_report import REPORT_INTERVAL, StatusReport
from conversations.engine.process.turn_opening import Abandon, open_with_slot
from conversations.engine.replays.replaying import Replays
from conversations.engine.subscriptions import Subscriptions
from conversations.engine.webhooks.delivering import DELIVERY_INTERVAL, Deliveries
from conversations.models import OpenedTurn, Turn
from llm.db.outages import UNREACHABLE

BEAT = 0.9  # seconds between snapshots; with jitter, below one
SWEEP = 2.0  # seconds between sweeps for turns that no process runs
SWEEP_LIMIT = 500  # turns that one sweep takes up
MIN_CHOICE = 32  # turns among which a sweep chooses, however few it takes up


class Engine:
    """Created on the server's event loop by `start`, and discarded after `drain`."""

    runs_turns = True  # False in a web process beside workers

    def __init__(self, log: EventLog, database: Database) -> None:
        self.tasks = EngineTasks()
        self.loop = self.tasks.loop
        self.log = log
        self.database = database
        self.read = database.read
        self.background = BackgroundCalls(
            database, submit=self.put_and_announce, notify_result=self.notify_result
        )
        self.dispatcher = Dispatcher(self.tasks, log, database, self.background.wake)
        self.runs = self.dispatcher.runs
        self.heartbeat = Heartbeat(self.tasks, self.dispatcher, database)
        self.subscriptions = Subscriptions(
            self.tasks, log, database, self.dispatcher.active_turns, self.put
        )
        self.subscribe = self.subscriptions.subscribe
        self.is_at_end = self.subscriptions.is_at_end
        self._fair_turns = FairTurns()
        self._schedule = Schedule(self.tasks, database)
        self.replays = Replays(self.tasks, database)
        self.evaluations = Evaluations(self.tasks, database)
        self.deliveries = Deliveries(self.tasks, database)
        self.status_report = StatusReport(
            self.dispatcher, database, runs_turns=self.runs_turns
        )

    async def start(self) -> None:
        self._repeat(BEAT, self.beat, name="heartbeat")
        self._repeat(SWEEP, self.sweep, name="sweep")
        self._repeat(CHECK_INTERVAL, self._schedule.run_due, name="sweep")
        self._repeat(BATCH_INTERVAL, self.replays.run_due, name="sweep")
        self._repeat(BATCH_INTERVAL, self.evaluations.run_due, name="sweep")
        self._repeat(DELIVERY_INTERVAL, self.deliveries.run_due, name="sweep")
        await self.start_reporting()
        await self.sweep()

    async def start_reporting(self) -> None:
        report = self.status_report.report
        with suppress(*UNREACHABLE):
            await report()
        self._repeat(REPORT_INTERVAL, report, name="heartbeat")
        self._repeat(FLUSH_INTERVAL, self._update_limits, name="heartbeat")

    async def _update_limits(self) -> None:
        await self.database.write(update_limits)
        await self.database.read(recipients.refresh)

    def _repeat(
        self, seconds: float, act: Callable[[], Awaitable[None]], *, name: str
    ) -> None:
        self.tasks.create(self.tasks.every(seconds, act), name=name)

    def begin_drain(self) -> None:
        """Start no more turns, and let subscribers end."""
        self.tasks.draining = True
        self.log.wake_all()

    async def drain(self, grace: float) -> None:
        """Start no more turns and calls, give those that run `grace` seconds, then
        release the rest to other processes."""
        self.begin_drain()
        running = self.tasks.with_names("running")
        if at_work := [*running, *self.background.begin_drain()]:
            await asyncio.wait(at_work, timeout=grace)
        self.dispatcher.release_all()
        await self.background.drain()
        self.tasks.stop()
        await self.tasks.cancel(
            *("heartbeat", "sweep", "queued", "replay", "title", "delivery")
        )
        with suppress(*UNREACHABLE):
            await self.status_report.close()
            await self.database.write(return_leases)
        await self.database.close()

    # Queue

    def submit(
        self,
        turn_id: str,
        conversation_id: str,
        opened: OpenedTurn | None = None,
        owner: int | None = None,
    ) -> None:
        if open_pages[conversation_id]:  # all pages belong to this process
            self.put_and_announce(turn_id, conversation_id, opened, owner)
        else:
            self.dispatcher.put(turn_id, opened, owner)

    def put(
        self,
        turn_id: str,
        opened: OpenedTurn | None = None,
        owner: int | None = None,
    ) -> None:
        """Run the turn as soon as there is room, `owner`'s turns one after another. A
        second call does nothing."""
        self.dispatcher.put(turn_id, opened, owner)

    def put_and_announce(
        self,
        turn_id: str,
        conversation_id: str,
        opened: OpenedTurn | None = None,
        owner: int | None = None,
    ) -> None:
        """Queue a turn that this process has opened, and announce it to open pages."""
        self.put(turn_id, opened, owner)
        self.tasks.create(announce_turn(conversation_id, turn_id), name="notify")

    async def open(
        self,
        open_turn: Callable[[], OpenedTurn],
        owner: int | None = None,
        abandon: Abandon | None = None,
        *,
        is_page: bool = False,
    ) -> Turn:
        """Open a turn, and claim it in the same transaction if there is room. All pages
        belong to this process; `is_page`: the caller is one of them."""
        return await open_with_slot(
            self.dispatcher.starts,
            owner,
            partial(self._open, open_turn, owner, is_page),
            abandon,
            self._create_opening,
        )

    def _create_opening(self, opening: Coroutine[Any, Any, Turn]) -> asyncio.Task[Turn]:
        # In the caller's context: its language and request id count.
        task = self.loop.create_task(opening)
        self.tasks.add(task)
        return task

    async def _open(
        self, open_turn: Callable[[], OpenedTurn], owner: int | None, is_page: bool
    ) -> Turn:
        turn, runs_here = await self.dispatcher.open(open_turn)
        if not runs_here:
            self.submit(turn.pk, turn.conversation_id, owner=owner)
        elif open_pages[turn.conversation_id] > is_page:  # besides the one that asks
            self.tasks.create(
                announce_turn(turn.conversation_id, turn.pk), name="notify"
            )
        return turn

    def cancel_all(self, turn_ids: Sequence[str]) -> None:
        """Stop the turns of a message and its background calls; the rows say which."""
        for turn_id in turn_ids:
            self.cancel(turn_id)
        self.wake_background()

    def cancel(self, turn_id: str) -> None:
        if not self.dispatcher.stop(turn_id):
            self.put(turn_id)  # so that a run ends it in order

    # Notifications

    def announce_rename(self, user_id: int, conversation_id: str) -> None:
        self.tasks.create(announce_title(user_id, conversation_id), name="notify")

    def announce_queue(self, conversation_id: str) -> None:
        self.tasks.create(announce_queue(conversation_id), name="notify")

    def announce_decision(self, conversation_id: str, question_id: str) -> None:
        announcing = announce_decision(conversation_id, question_id)
        self.tasks.create(announcing, name="notify")

    def announce_branches(self, conversation_id: str) -> None:
        self.tasks.create(announce_branches(conversation_id), name="notify")

    def notify_result(self, conversation_id: str) -> None:
        """Tell a run that its conversation has a new background result, or a message
        that steers it."""
        for run in self.runs.values():
            if run.claim.conversation_id == conversation_id:
                run.record.has_new_results = True

    def notify_decision(self, turn_id: str, question_id: str) -> None:
        """Notify the turn's run that a person has answered its form."""
        if run := self.runs.get(turn_id):
            run.questions.notify_decision(question_id)

    def wake_background(self) -> None:
        """Look for background calls to start or to cancel."""
        self.background.wake()

    def forget(self, turn_id: str) -> None:
        """Drop the events of a finished turn whose rows have changed."""
        self.subscriptions.forget(turn_id)
        if turn_id not in self.dispatcher.active_turns:
            self.log.drop(turn_id)

    def publish_notification(self, kind: str) -> None:
        """Notify other processes, which in the embedded delivery serve the gateway."""
        for relay in relays:
            relay(kind)

    # Periodic work

    async def beat(self) -> None:
        await self.background.beat()
        self.dispatcher.open_gate()
        await self.heartbeat.beat()

    async def sweep(self) -> None:
        if (room := self._room()) > 0:
            await self._put_claimable(room)
        for turn_id in await self.database.write(question_store.expire_questions):
            self.put(turn_id)
        await self.database.write(budget.charge_expired)
        await self.background.sweep()

    async def _put_claimable(self, room: int) -> bool:
        """Whether there may be more turns than there is room."""
        limit = max(room, MIN_CHOICE)
        found = await self.database.read(claim_store.to_sweep, limit)
        for turn in self._fair_turns.choose(found, room):
            self.put(turn.turn_id, owner=turn.author_id)
        suspects = await self.database.read(claim_store.suspects, 1)
        if not suspects:
            self.dispatcher.gate.forget_waiting()
        for turn_id, is_repeated in suspects:
            self.dispatcher.put_alone(turn_id, is_repeated=is_repeated)
        return len(found) >= room

    def _room(self) -> int:
        """The number of turns that a sweep may take up now."""
        return SWEEP_LIMIT
