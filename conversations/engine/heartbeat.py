"""The heartbeat: renews leases of this process's runs and stores their snapshots."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from conversations.engine import lease_store
from conversations.engine.claim_store import Claim
from conversations.engine.database.executor import Database
from conversations.engine.dispatcher import Dispatcher
from conversations.engine.lease_store import Snapshot
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.runs.run import Run
from conversations.engine.runs.snapshots import ROW_COST, SnapshotBudget
from llm.db.outages import UNREACHABLE


class Heartbeat:
    def __init__(
        self,
        tasks: EngineTasks,
        dispatcher: Dispatcher,
        database: Database,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._tasks = tasks
        self._runs: Mapping[str, Run] = dispatcher.runs
        self._dispatcher = dispatcher
        self._database = database
        self._budget = SnapshotBudget()
        self._is_storing = False  # a task writes large snapshots

    async def beat(self) -> None:
        runs = list(self._runs.values())
        loading = self._dispatcher.loading_claims()
        if not runs and not loading:
            return
        beats = self._take_snapshots(runs)
        beats.update(dict.fromkeys(loading))
        unstored = {claim.turn_id for claim, snapshot in beats.items() if snapshot}
        sent = sum(map(_cost, beats.values()))
        began, is_stored = self._clock(), False
        try:
            result = await self._database.beat(lease_store.heartbeat, beats)
            unstored.intersection_update(result.skipped)
            is_stored = True
        finally:
            seconds = self._clock() - began
            self._budget.adjust(sent, seconds, is_stored=is_stored)
            for turn_id in unstored:
                if run := self._runs.get(turn_id):
                    run.snapshots.retake()
        for claim in result.lost:
            self._dispatcher.fence(claim)
        for turn_id in result.stopped:
            self._dispatcher.stop(turn_id)

    def _take_snapshots(self, runs: Sequence[Run]) -> dict[Claim, Snapshot | None]:
        """The snapshots to store with the leases, first of the runs whose last one is
        oldest. Long ones get a task of their own, so that they delay no lease."""
        beats: dict[Claim, Snapshot | None] = {}
        left = self._budget.characters
        for run in sorted(runs, key=lambda run: run.snapshots.taken_at):
            may_take = left > 0 and not run.snapshots.is_long
            beats[run.claim] = snapshot = run.snapshots.take() if may_take else None
            left -= _cost(snapshot)
        for claim, snapshot in beats.items():
            if snapshot is not None and snapshot.is_long:
                beats[claim] = None
                self._tasks.create(self._store(claim, snapshot), name="snapshot")
        if not self._is_storing and any(run.snapshots.is_long for run in runs):
            self._is_storing = True
            self._tasks.create(self._store_large(runs), name="snapshot")
        return beats

    async def _store_large(self, runs: Sequence[Run]) -> None:
        """Write large snapshots one after another: each holds a copy of its text until
        it is written."""
        try:
            for run in runs:
                if run.snapshots.is_long and run.claim.turn_id in self._runs:
                    if (snapshot := run.snapshots.take()) is not None:
                        await self._store(run.claim, snapshot)
                    del snapshot
        finally:
            self._is_storing = False

    async def _store(self, claim: Claim, snapshot: Snapshot) -> None:
        is_stored = False
        try:
            with suppress(*UNREACHABLE):  # the next snapshot holds the same text
                is_stored = await self._database.write(
                    lease_store.store_snapshot, claim, snapshot
                )
        finally:
            if not is_stored and (run := self._runs.get(claim.turn_id)):
                run.snapshots.retake()


def _cost(snapshot: Snapshot | None) -> int:
    """What storing the snapshot with the leases costs, in characters. Long ones are
    stored separately."""
    return 0 if snapshot is None or snapshot.is_long else snapshot.length + ROW_COST
