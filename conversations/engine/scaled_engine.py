"""The engine of many processes: rows in PostgreSQL, events in Redis or in PostgreSQL.

Worker processes run turns; all processes subscribe to them. The workers are woken by a
notice in the same transaction as the change, or by a notification of another process;
their sweep makes up for lost ones.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from django.conf import settings

from conversations.engine import claim_store, notifications
from conversations.engine.claim_store import Claim
from conversations.engine.database.executor import Database
from conversations.engine.database.turn_notices import (
    TurnNotice,
    TurnNotices,
    clean_up,
    enqueue,
)
from conversations.engine.engine import SWEEP_LIMIT, Engine
from conversations.engine.notifications import announce_turn
from conversations.engine.shared_log.silent_logs import POLL_INTERVAL, SilentLogs
from conversations.engine.shared_log.transport import open_transport
from conversations.engine.shared_log.turns_from_rows import load_turns
from llm.db.outages import UNREACHABLE
from tools.execute import format_trace

if TYPE_CHECKING:
    from conversations.models import OpenedTurn

logger = logging.getLogger(__name__)

WATCH = 0.5  # seconds between checks of our own leases
CLEAN_UP = 6 * 3600  # seconds between deletions of jobs of earlier versions
HEAD_START = 0.01  # seconds for a worker that ran the conversation of late
TAKE_UP = 0.1  # seconds between two looks for room for turns that were left
PAUSE_FACTOR = 4  # of the time of a look for these turns until the next one
MARGIN = 1.0  # seconds before the end of a lease at which its run stops
THREADS = 2  # of each kind; each thread has a connection


class ScaledEngine(Engine):
    def __init__(self, *, is_worker: bool) -> None:
        self.runs_turns = is_worker
        self._bus, self._shared_log = open_transport(self._receive_notification)
        database = Database(
            writers=THREADS, readers=THREADS, patience=settings.TURN_LEASE - 2
        )
        super().__init__(self._shared_log, database)
        self._is_worker = is_worker
        self._silent_logs = SilentLogs(
            self._shared_log.subscriber,
            lambda positions, questions: database.read(
                load_turns, positions, questions
            ),
        )
        self._notices = TurnNotices(self.receive_notice)
        self._has_left_turns = False  # to other workers, for want of room
        self._next_look = 0.0  # for them, by the loop's clock
        self._held_back: list[str] = []  # turns that others may claim first
        #: When each lease was last renewed for sure.
        self._renewed: dict[Claim, float] = {}
        self._watched = self._watch_paused_until = self.loop.time()

    async def start(self) -> None:
        self._bus.start()
        self._shared_log.start()
        self._repeat(POLL_INTERVAL, self._silent_logs.poll, name="heartbeat")
        if self._is_worker:
            self._repeat(WATCH, self._watch, name="heartbeat")
            self._repeat(CLEAN_UP, self._clean_up, name="heartbeat")
            self._repeat(TAKE_UP, self._take_left_turns, name="sweep")
            self._notices.start()
            with suppress(*UNREACHABLE):
                await super().start()
        else:
            await self.start_reporting()

    async def drain(self, grace: float) -> None:
        self.tasks.draining = True
        await self._notices.stop()
        await super().drain(grace)
        await self._shared_log.aclose()
        await self._bus.close()

    # Queue

    def submit(
        self,
        turn_id: str,
        conversation_id: str,
        opened: OpenedTurn | None = None,
        owner: int | None = None,
    ) -> None:
        """The turn's notice was committed with it; only the open pages need a
        notification."""
        if opened is not None and opened.items:
            self.subscriptions.note_new(turn_id)
        if conversation_id:
            self.tasks.create(announce_turn(conversation_id, turn_id), name="notify")

    def put(
        self,
        turn_id: str,
        opened: OpenedTurn | None = None,
        owner: int | None = None,
    ) -> None:
        if self._is_worker:
            super().put(turn_id, owner=owner)
        elif not self.tasks.draining:
            self.tasks.create(self._enqueue(turn_id), name="enqueue")

    def receive_notice(self, notice: TurnNotice) -> None:
        """Run the turn if there is room; otherwise another worker may have some. While
        turns wait for room, it takes its place among them.

        A worker that has not run the conversation of late gives others, which may have
        its history in memory, a moment to claim the turn.
        """
        if self._room() <= 0 or self._has_left_turns:
            self._has_left_turns = True
        elif notice.is_first or self.dispatcher.has_run(notice.conversation_id):
            super().put(notice.turn_id)
        else:
            if not self._held_back:
                self.loop.call_later(HEAD_START, self._put_held_back)
            self._held_back.append(notice.turn_id)

    def _put_held_back(self) -> None:
        turn_ids, self._held_back = self._held_back, []
        if not self.tasks.draining:
            self.tasks.create(self._put_if_queued(turn_ids), name="enqueue")

    async def _put_if_queued(self, turn_ids: Sequence[str]) -> None:
        """One read for all of them is cheaper than a claim of each."""
        with suppress(*UNREACHABLE):  # the sweep finds them
            for turn_id in await self.database.read(claim_store.find_queued, turn_ids):
                super().put(turn_id)

    async def _take_left_turns(self) -> None:
        """Look for the turns that were left as soon as there is room, until all have
        some. The more turns wait, the longer a look takes the database, and the longer
        is the pause after it."""
        began = self.loop.time()
        if not self._has_left_turns or began < self._next_look:
            return
        if (room := self._room()) <= 0:
            return
        self._has_left_turns = False  # a notice that comes meanwhile sets it again
        has_seen_all = False
        try:
            has_seen_all = not await self._put_claimable(room)
        finally:
            self._has_left_turns |= not has_seen_all
            ended = self.loop.time()
            self._next_look = ended + PAUSE_FACTOR * (ended - began)

    async def _enqueue(self, turn_id: str) -> None:
        try:
            await self.database.write(enqueue, turn_id)
        except UNREACHABLE as exc:
            logger.warning(
                "turn %s is left to the sweep: %s", turn_id, format_trace(exc)
            )

    def cancel(self, turn_id: str) -> None:
        if not self.dispatcher.stop(turn_id):
            self._send_notification("cancel", turn_id)
            self.put(turn_id)  # if no process runs it, a run ends it in order

    def _stop(self, turn_id: str) -> None:
        """Stop the turn here. One that no process runs ends now, as that needs no
        room."""
        if not self.dispatcher.stop(turn_id) and self._is_worker:
            super().put(turn_id)
            self.dispatcher.stop(turn_id)

    def notify_result(self, conversation_id: str) -> None:
        super().notify_result(conversation_id)
        self._send_notification("news", conversation_id)

    def notify_decision(self, turn_id: str, question_id: str) -> None:
        super().notify_decision(turn_id, question_id)
        self._send_notification("decided", turn_id, question_id)

    def wake_background(self) -> None:
        if self._is_worker:
            super().wake_background()
        self._send_notification("background")

    def forget(self, turn_id: str) -> None:
        super().forget(turn_id)
        self.tasks.create(self._forget(turn_id), name="forget")

    async def _forget(self, turn_id: str) -> None:
        await self._shared_log.delete(turn_id)
        await self._bus.publish_notification("forget", turn_id)

    # Hints

    def publish_notification(self, kind: str) -> None:
        self._send_notification(kind)

    def _send_notification(self, kind: str, *ids: str) -> None:
        if not self.tasks.is_stopped:
            self.tasks.create(self._bus.publish_notification(kind, *ids), name="notify")

    def _receive_notification(self, kind: str, ids: list[str]) -> None:
        match kind, ids:
            case "cancel", [turn_id]:
                self._stop(turn_id)
            case "news", [conversation_id]:
                super().notify_result(conversation_id)
            case "decided", [turn_id, question_id]:
                super().notify_decision(turn_id, question_id)
            case "background", _ if self._is_worker:
                super().wake_background()
            case "forget", [turn_id]:
                super().forget(turn_id)
            case _:
                notifications.dispatch(kind)

    # Beats

    async def beat(self) -> None:
        now = self.loop.time()
        claims = self._leased()
        await super().beat()
        self._renewed.update(dict.fromkeys(claims, now))

    async def _watch(self) -> None:
        """Stop the runs whose lease may have expired and been claimed elsewhere.

        After this process itself has stood still, a heartbeat comes first, which knows
        which leases are lost.
        """
        now = self.loop.time()
        if now - self._watched > MARGIN:
            self._watch_paused_until = now + settings.TURN_LEASE / 2
        self._watched = now
        if now < self._watch_paused_until:
            return
        self._renewed = {
            claim: self._renewed.get(claim, now) for claim in self._leased()
        }
        for claim, renewed in self._renewed.items():
            if now - renewed > settings.TURN_LEASE - MARGIN:
                logger.warning("turn %s: its lease cannot be renewed", claim.turn_id)
                self.dispatcher.fence(claim)
                self._renewed[claim] = math.inf  # logged once

    def _leased(self) -> list[Claim]:
        """The claims of the turns that this process runs or loads."""
        running = [run.claim for run in self.runs.values()]
        return [*running, *self.dispatcher.loading_claims()]

    async def _clean_up(self) -> None:
        await self.database.write(clean_up)

    def _room(self) -> int:
        """A worker takes only as many turns as it has room for, and leaves the rest to
        others."""
        return min(
            SWEEP_LIMIT, settings.TURN_CONCURRENCY - len(self.dispatcher.active_turns)
        )
