"""The turn engine of one process: queue, claims, runs, heartbeat, sweep, subscriptions.

The embedded and the scaled engine are subclasses. They differ in where events are
stored (`EventLog`), in how other processes are notified, and in how this process learns
about them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Sequence,
)
from contextlib import suppress
from contextvars import Context
from functools import partial
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

from django.conf import settings
from django.db import InterfaceError, OperationalError

from conversations.access import budget
from conversations.engine import turn_store
from conversations.engine.background import BackgroundCalls
from conversations.engine.database.disk_space import report_full
from conversations.engine.database.executor import Database, is_database_unavailable
from conversations.engine.event_log import (
    MAX_ENTRIES,
    DirectSink,
    Entry,
    EventLog,
    Position,
    TurnLog,
    entries_after,
    portions,
)
from conversations.engine.maintenance.schedule import CHECK_INTERVAL, Schedule
from conversations.engine.notifications import announce_title, announce_turn, open_pages
from conversations.engine.replay import FinishedTurn, replay
from conversations.engine.run import Run
from conversations.engine.turn_loader import (
    ClaimAttempt,
    Work,
    claim_and_load,
    load_claimed,
    open_and_claim,
)
from conversations.models import Turn
from conversations.throttled_warning import ThrottledWarning
from tools.execute import format_trace

logger = logging.getLogger(__name__)

BEAT = 0.9  # seconds between snapshots; with jitter, below one
SWEEP = 2.0  # seconds between sweeps for turns that no process runs
SWEEP_LIMIT = 500  # turns that one sweep takes up
PATIENCE = 30.0  # seconds for which a suspect waits for other turns
LONGEST_ALONE = 30.0  # seconds for which other turns wait for a suspect
UNREACHABLE = (OperationalError, InterfaceError)
#: For callbacks that read no context variables: without it, each callback holds a
#: context of its own.
_EMPTY_CONTEXT = Context()


class Engine:
    """Created on the server's event loop by `start`, and discarded after `drain`."""

    def __init__(self, log: EventLog, database: Database) -> None:
        self.loop = asyncio.get_running_loop()
        self.draining = False
        self.runs: dict[str, Run] = {}
        self._log = log
        self._database = database
        self._slots = asyncio.Semaphore(settings.TURN_CONCURRENCY)
        self._large_answer_slot = asyncio.Semaphore(1)  # one large answer at a time
        self._tasks: set[asyncio.Task[Any]] = set()
        self._forget_task = self._tasks.discard
        #: Turns that have a task, with a future that is resolved once it is known
        #: whether this process runs the turn; None afterwards.
        self._active_turns: dict[str, asyncio.Future[None] | None] = {}
        #: Active turns that were stopped before they had a run.
        self._to_stop: set[str] = set()
        #: Finished turns whose events are being read from rows.
        self._finished_turns: WeakValueDictionary[str, FinishedTurn] = (
            WeakValueDictionary()
        )
        self._stopped = asyncio.Event()
        #: Set while turns may start: cleared while a suspect runs alone and has not
        #: progressed.
        self._gate = asyncio.Event()
        self._gate.set()
        self._alone = ""  # the suspect that runs alone
        self._alone_since = math.inf
        self._is_storing_snapshots = False  # a task writes large snapshots
        self._suspect_since = math.inf  # when the waiting suspect was first found
        self.read = database.read
        self.background = BackgroundCalls(
            database, submit=self.put_and_announce, notify_result=self.notify_result
        )
        self._wake = self.background.wake  # one bound method for all runs
        self._schedule = Schedule(database)
        self._disk_full_warning = ThrottledWarning(
            logger, "no room on the disk for the engine's %s"
        )

    async def start(self) -> None:
        self._create_task(self._every(BEAT, self._beat), name="heartbeat")
        self._create_task(self._every(SWEEP, self._sweep), name="sweep")
        self._create_task(
            self._every(CHECK_INTERVAL, self._schedule.run_due), name="sweep"
        )
        await self._sweep()

    async def drain(self, grace: float) -> None:
        """Start no more turns and calls, give those that run `grace` seconds, then
        release the rest to other processes."""
        self.draining = True
        self._log.wake_all()
        running = [task for task in self._tasks if task.get_name() == "running"]
        if at_work := [*running, *self.background.begin_drain()]:
            await asyncio.wait(at_work, timeout=grace)
        for run in list(self.runs.values()):
            run.cancel("released")
        await self.background.drain()
        self._stopped.set()
        tasks = list(self._tasks)
        for task in tasks:
            if task.get_name() in ("heartbeat", "sweep", "queued"):
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._database.close()

    # Queue

    def submit(
        self, turn_id: str, conversation_id: str, opened: Turn | None = None
    ) -> None:
        if conversation_id:
            self.put_and_announce(turn_id, conversation_id, opened)
        else:
            self.put(turn_id)

    def put_and_announce(
        self, turn_id: str, conversation_id: str, opened: Turn | None = None
    ) -> None:
        """Queue a turn that this process has opened, and announce it to open pages."""
        self.put(turn_id, opened)
        self._create_task(announce_turn(conversation_id, turn_id), name="hint")

    def announce_rename(self, user_id: int, conversation_id: str) -> None:
        self._create_task(announce_title(user_id, conversation_id), name="hint")

    def put(self, turn_id: str, opened: Turn | None = None) -> None:
        """Run the turn as soon as there is room. A second call does nothing."""
        if self.draining or turn_id in self._active_turns:
            return
        self._active_turns[turn_id] = self.loop.create_future()
        self._create_task(
            self._process_turn(ClaimAttempt(turn_id, opened=opened)), name="queued"
        )

    def put_alone(self, turn_id: str, again: bool) -> None:
        """Run a suspect: a turn that has been claimed repeatedly without progress, so
        that it may be the cause of the ended processes. It runs beside no turn that has
        not progressed yet.

        A turn that is a suspect for the first time was probably only running beside the
        one that ended the process, and there may be hundreds of these. It therefore
        starts beside turns that have progressed: they lose nothing if the process ends.
        A turn that is a suspect `again` starts when no other turn is active. If some
        turn always is, the suspect starts after PATIENCE beside the running turns, and
        later turns wait. See `sql.TRUSTED`.
        """
        now = self.loop.time()
        self._suspect_since = min(self._suspect_since, now)
        is_patient = now - self._suspect_since < PATIENCE
        waits = bool(self._active_turns) if again else self._has_unproductive()
        is_known = turn_id in self._active_turns
        if self.draining or self._alone or is_known or (waits and is_patient):
            return
        self._alone, self._alone_since = turn_id, now
        self._suspect_since = math.inf
        self._gate.clear()
        self._active_turns[turn_id] = self.loop.create_future()
        self._create_task(
            self._process_turn(ClaimAttempt(turn_id, is_alone=True)), name="queued"
        )

    def _has_unproductive(self) -> bool:
        """Whether a turn that has not progressed yet is active here."""
        runs = map(self.runs.get, self._active_turns)
        return any(run is None or not run.has_progressed for run in runs)

    def _open_gate(self) -> None:
        """Let other turns start once the suspect has progressed or takes too long."""
        run = self.runs.get(self._alone)
        has_progressed = run is not None and run.has_progressed
        if has_progressed or self.loop.time() - self._alone_since > LONGEST_ALONE:
            self._gate.set()

    async def admit(self, turn_id: str) -> None:
        """Like `put`, but returns once the turn is claimed or cannot be."""
        self.put(turn_id)
        if known := self._active_turns.get(turn_id):
            await asyncio.shield(known)

    def cancel_all(self, turn_ids: Sequence[str]) -> None:
        """Stop the turns of a message and its background calls; the rows say which."""
        for turn_id in turn_ids:
            self.cancel(turn_id)
        self.wake_background()

    def cancel(self, turn_id: str) -> None:
        if not self.stop(turn_id):
            self.put(turn_id)  # so that a run ends it in order

    def stop(self, turn_id: str) -> bool:
        """Stop the turn here; False if this process does not run it.

        A run that is about to start may have read the rows before the cancellation, so
        the turn is remembered and that run is stopped too.
        """
        if run := self.runs.get(turn_id):
            run.cancel()
        elif turn_id in self._active_turns:
            self._to_stop.add(turn_id)
        return run is not None

    def notify_result(self, conversation_id: str) -> None:
        """Tell a run that its conversation has a new background result."""
        for run in self.runs.values():
            if run.claim.conversation_id == conversation_id:
                run.has_new_results = True

    def notify_decision(self, turn_id: str, question_id: str) -> None:
        """Notify the turn's run that a person has answered its form."""
        if run := self.runs.get(turn_id):
            run.notify_decision(question_id)

    def wake_background(self) -> None:
        """Look for background calls to start or to cancel."""
        self.background.wake()

    def publish_notification(self, kind: str) -> None:
        """Notify other processes; there are none in the embedded engine."""

    async def open(self, open_turn: Callable[[], Turn]) -> Turn:
        """Open a turn for a page, and claim it in the same transaction if there is
        room. All pages belong to this process."""
        opening = self.loop.create_task(self._open(open_turn))
        self._tasks.add(opening)
        opening.add_done_callback(self._forget_task, context=_EMPTY_CONTEXT)
        return await asyncio.shield(opening)

    async def _open(self, open_turn: Callable[[], Turn]) -> Turn:
        if self.draining or self._slots.locked() or not self._gate.is_set():
            turn = await self._database.write(open_turn)
            self.put_and_announce(turn.pk, turn.conversation_id)
            return turn
        attempt = ClaimAttempt()
        await self._slots.acquire()  # at once, and handed to the run
        try:
            opening = self._database.write(
                open_and_claim, attempt, open_turn, self._active_turns
            )
            loading = self._database.write(load_claimed, attempt)
            turn = await opening
        finally:
            if attempt.claim is None:
                self._slots.release()
        if attempt.claim is None:  # it waits for an earlier turn, or was opened before
            self.put_and_announce(turn.pk, turn.conversation_id)
            return turn
        self._active_turns[turn.pk] = self.loop.create_future()
        self._create_task(self._process_turn(attempt, loading), name="running")
        if (
            open_pages[turn.conversation_id] > 1
        ):  # other pages besides the one that asks
            self._create_task(announce_turn(turn.conversation_id, turn.pk), name="hint")
        return turn

    async def _process_turn(
        self, attempt: ClaimAttempt, loading: asyncio.Future[Work | None] | None = None
    ) -> None:
        """Claim the turn and run it. With `loading`, the turn is already claimed and
        has a slot."""
        turn_id, next_turn = attempt.turn_id, None
        has_slot = loading is not None
        if not has_slot and (self._slots.locked() or not self._gate.is_set()):
            attempt.opened = None  # it may have changed once there is room
        try:
            if not has_slot:
                if not attempt.is_alone:
                    await self._gate.wait()
                has_slot = await self._slots.acquire()
                if not self.draining:
                    loading = self._database.write(claim_and_load, attempt)
            run = await self._create_run(attempt, loading) if loading else None
            del attempt, loading  # frees what they hold while the answer is generated
            if run is not None:
                await run.main()
                next_turn = run.next_turn
        except UNREACHABLE as exc:
            logger.warning(
                "turn %s is left to the sweep: %s", turn_id, format_trace(exc)
            )
        finally:
            if has_slot:
                self._slots.release()
            self._mark_admitted(turn_id)
            self._active_turns.pop(turn_id, None)
            if turn_id == self._alone:
                self._alone = ""
                self._gate.set()
            self._to_stop.discard(turn_id)
            self.runs.pop(turn_id, None)
            self._log.close(turn_id)
            if log := self._log.get(turn_id):
                log.wake()  # if no run here ended the turn, subscribers read the rows
        if next_turn:
            self.put(next_turn)

    async def _create_run(
        self, attempt: ClaimAttempt, loading: asyncio.Future[Work | None]
    ) -> Run | None:
        """Create the run of a claimed turn; None if it could not be claimed."""
        task = asyncio.current_task()
        assert task is not None
        task.set_name("running")  # a drain lets it end by itself
        await asyncio.wait([loading])
        if attempt.claim is None:
            loading.result()
            return None
        turn_id = attempt.turn_id
        journal = self._log.open_publisher(turn_id, partial(self._fence, turn_id))
        run = Run(
            attempt.claim,
            journal,
            self._database,
            loading,
            self._wake,
            self._large_answer_slot,
        )
        self.runs[turn_id] = run
        self._mark_admitted(turn_id)
        if turn_id in self._to_stop:
            run.cancel()
        if self.draining:
            run.cancel("released")
        return run

    def _mark_admitted(self, turn_id: str) -> None:
        if (known := self._active_turns[turn_id]) is not None:
            known.set_result(None)
            self._active_turns[turn_id] = None

    def _fence(self, turn_id: str) -> None:
        if run := self.runs.get(turn_id):
            run.cancel("fenced")

    # Log

    async def subscribe(
        self, turn_id: str, after: Position | None, sink: DirectSink | None = None
    ) -> AsyncGenerator[list[Entry], None]:
        """Yield entries after `after`, past and future; ends with the turn or with a
        drain.

        Entries that `sink` could write directly are not yielded; the last entry of the
        turn always is.
        """
        log = await self._log.subscribe(turn_id)
        try:
            while not self.draining:
                if log.is_over or not (log.entries or log.fallback):
                    if turn_id in self._active_turns and not log.is_over:
                        await self._wait_for_change(log)  # a run here will publish it
                        continue
                    if finished := await self._load_finished(turn_id):
                        for batch in portions(finished.after(after)):
                            yield batch
                        return
                    await self._republish(turn_id)
                    if log.is_over or not (log.entries or log.fallback):
                        await self._wait_for_change(log)
                    continue
                known = log.entries
                batch = entries_after(known, after, MAX_ENTRIES) if known else []
                del known
                if not _has_new_entries(batch, after) and log.fallback:
                    batch = _fallback_entries(log.fallback, log.entries, after)
                if _has_new_entries(batch, after):
                    batch = next(portions(batch))
                    after = batch[-1].log_position
                    yield batch
                    del batch  # frees it while waiting for the next
                elif log.ended:
                    for rest in portions(await self._entries_from_rows(log, after)):
                        yield rest
                    return
                elif sink and _is_caught_up(log, after):
                    if not self.draining and (last := await log.write_directly(sink)):
                        after = last.log_position
                else:
                    await self._wait_for_change(log)
        finally:
            self._log.unsubscribe(log)

    async def _wait_for_change(self, log: TurnLog) -> None:
        """Wait for a change of the log. A drain wakes all waiting subscribers only
        once, so a subscriber that comes later must not wait."""
        if not self.draining:
            await log.wait_for_change()

    def forget(self, turn_id: str) -> None:
        self._finished_turns.pop(turn_id, None)
        if turn_id not in self._active_turns:
            self._log.drop(turn_id)

    async def is_at_end(self, turn_id: str, after: Position) -> bool:
        """True if the turn is over and has no entries after `after`."""
        log = self._log.get(turn_id)
        if log is not None and log.entries and not _is_from_rows(log, after):
            return log.ended and after >= log.entries[-1].log_position
        finished = await self._load_finished(turn_id)
        return finished is not None and not finished.after(after)

    async def _load_finished(self, turn_id: str) -> FinishedTurn | None:
        if (known := self._finished_turns.get(turn_id)) is not None:
            return known
        try:
            finished = await self._database.read(replay, turn_id)
            # Hundreds of subscribers may ask at once; they share one object for as long
            # as they read.
            return (
                self._finished_turns.setdefault(turn_id, finished) if finished else None
            )
        except UNREACHABLE as exc:
            logger.warning("turn %s cannot be read: %s", turn_id, format_trace(exc))
            return None

    async def _entries_from_rows(
        self, log: TurnLog, after: Position | None
    ) -> list[Entry]:
        """Remaining entries for a subscriber that has been reading from rows, whatever
        the log holds now."""
        if not _is_from_rows(log, after) or not (
            finished := await self._load_finished(log.turn_id)
        ):
            return []
        return finished.after(after)

    async def _republish(self, turn_id: str) -> None:
        """Make a turn that waits for a person publish its question again."""
        with suppress(*UNREACHABLE):
            if await self._database.write(turn_store.requeue_to_republish, turn_id):
                self.put(turn_id)

    # Beats

    async def _beat(self) -> None:
        await self.background.beat()
        self._open_gate()
        runs = list(self.runs.values())
        if not runs:
            return
        beats = {run.claim: None if run.is_long else run.snapshot() for run in runs}
        for claim, snapshot in beats.items():
            if snapshot is not None and snapshot.is_long:
                beats[claim] = None
                self._create_task(
                    self._store_large_snapshot(claim, snapshot), name="hint"
                )
        if not self._is_storing_snapshots and any(run.is_long for run in runs):
            self._is_storing_snapshots = True
            self._create_task(self._store_large_snapshots(runs), name="hint")
        unstored = {claim.turn_id for claim, snapshot in beats.items() if snapshot}
        try:
            result = await self._database.beat(turn_store.heartbeat, beats)
            unstored.intersection_update(result.skipped)
        finally:
            for turn_id in unstored:
                if run := self.runs.get(turn_id):
                    run.retake_snapshot()
        for turn_id in result.lost:
            self._fence(turn_id)
        for turn_id in result.stopped:
            if run := self.runs.get(turn_id):
                run.cancel()

    async def _store_large_snapshots(self, runs: Sequence[Run]) -> None:
        """Write large snapshots one after another: each holds a copy of its text until
        it is written."""
        try:
            for run in runs:
                if run.is_long and run.claim.turn_id in self.runs:
                    if (snapshot := run.snapshot()) is not None:
                        await self._store_large_snapshot(run.claim, snapshot)
                    del snapshot
        finally:
            self._is_storing_snapshots = False

    async def _store_large_snapshot(
        self, claim: turn_store.Claim, snapshot: turn_store.Snapshot
    ) -> None:
        is_stored = False
        try:
            with suppress(*UNREACHABLE):  # the next snapshot holds the same text
                is_stored = await self._database.write(
                    turn_store.store_snapshot, claim, snapshot
                )
        finally:
            if not is_stored and (run := self.runs.get(claim.turn_id)):
                run.retake_snapshot()

    async def _sweep(self) -> None:
        if (room := self._room()) > 0:
            for turn_id in await self._database.read(turn_store.to_sweep, room):
                self.put(turn_id)
            suspects = await self._database.read(turn_store.suspects, 1)
            if not suspects:
                self._suspect_since = math.inf
            for turn_id, again in suspects:
                self.put_alone(turn_id, again)
        for turn_id in await self._database.write(turn_store.expire_questions):
            self.put(turn_id)
        await self._database.write(budget.release_expired)
        await self.background.sweep()

    def _room(self) -> int:
        return SWEEP_LIMIT

    async def _every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            # Jitter, so that many processes do not query at the same moment.
            pause = seconds * random.uniform(0.9, 1.1)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), pause)
                return
            try:
                await act()
            except Exception as exc:
                # The database may be available again at the next beat; a lease outlasts
                # several.
                if report_full(exc):
                    self._disk_full_warning.log(act.__name__)
                elif is_database_unavailable(exc):
                    logger.warning("no database for the engine's %s", act.__name__)
                else:
                    logger.error(
                        "the engine's %s failed: %s", act.__name__, format_trace(exc)
                    )

    def _create_task(
        self, coroutine: Coroutine[Any, Any, None], *, name: str
    ) -> asyncio.Task[None]:
        # In a context of its own: otherwise a run would hold everything that the
        # request which started it has put into context variables.
        task = self.loop.create_task(coroutine, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._forget_task, context=_EMPTY_CONTEXT)
        return task


def _has_new_entries(batch: list[Entry], after: Position | None) -> bool:
    """A reset alone has the subscriber's own position; it waits for the entries that
    follow it."""
    if not batch or after is None:
        return bool(batch)
    last = batch[-1]
    return last.sequence != after.sequence or last.epoch != after.epoch


def _is_caught_up(log: TurnLog, after: Position | None) -> bool:
    """Whether the next appended entry is also the next one that the subscriber
    needs."""
    return (
        bool(log.entries) and not log.fallback and log.entries[-1].log_position == after
    )


def _is_from_rows(log: TurnLog, after: Position | None) -> bool:
    """Whether a subscriber has read a finished turn from rows, in an epoch later than
    any log's."""
    return log.ended and after is not None and after.epoch > log.epoch


def _fallback_entries(
    fallback: Sequence[Sequence[Entry]],
    entries: Sequence[Entry],
    after: Position | None,
) -> list[Entry]:
    """Fallback entries for a subscriber whose position is exactly where `fallback`
    begins or where one of its batches ends: inside a batch, sequence numbers differ
    from those of the run. A fallback in a later epoch than the log is complete by
    itself."""
    ends = [batch[-1].log_position for batch in fallback]
    if after is not None and after.epoch < ends[0].epoch:
        return entries_after([*chain.from_iterable(fallback)], after)
    known = entries[-1].log_position if entries else None
    if after not in (None, known, *ends):
        return []
    batches = zip(fallback, ends, strict=True)
    return [e for batch, end in batches if after is None or end > after for e in batch]
