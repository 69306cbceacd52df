"""Subscriptions to the events of turns, from the log or else from rows."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from weakref import WeakValueDictionary

from conversations.engine import claim_store
from conversations.engine.database.executor import Database
from conversations.engine.event_log import (
    MAX_ENTRIES,
    DirectSink,
    Entry,
    EventLog,
    Position,
    TurnDeleted,
    TurnLog,
    entries_after,
    portions,
)
from conversations.engine.finished_turn_events import FinishedTurn, replay_or_status
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.row_entries import fallback_entries
from conversations.models import Turn
from llm.db.outages import UNREACHABLE
from tools.execute import format_trace

logger = logging.getLogger(__name__)

MAX_NEW = 1_000  # turns that wait for their first subscriber
NEW_FOR = 5.0  # seconds
READ_AGAIN = 1.0  # seconds until rows that could not be read are read again


class Subscriptions:
    """`active_turns` are those that a run of this process will publish. `put` runs a
    turn."""

    def __init__(
        self,
        tasks: EngineTasks,
        log: EventLog,
        database: Database,
        active_turns: Mapping[str, object],
        put: Callable[[str], None],
    ) -> None:
        self._tasks = tasks
        self._log = log
        self._database = database
        self._active_turns = active_turns
        self._put = put
        #: Turns that were opened just now, with the time by the loop's clock, in order.
        self._new: dict[str, float] = {}
        #: Finished turns whose events are being read from rows.
        self._finished_turns: WeakValueDictionary[str, FinishedTurn] = (
            WeakValueDictionary()
        )

    def note_new(self, turn_id: str) -> None:
        """The turn was opened just now, and a run elsewhere will publish it: its first
        subscriber here need not read its status. A poll finds it should the events be
        lost."""
        self._new[turn_id] = self._tasks.loop.time()
        if len(self._new) > MAX_NEW:
            del self._new[next(iter(self._new))]

    async def subscribe(
        self, turn_id: str, after: Position | None, sink: DirectSink | None = None
    ) -> AsyncGenerator[list[Entry], None]:
        """Yield entries after `after`, past and future; ends with the turn or with a
        drain.

        Entries that `sink` could write directly are not yielded; the last entry of the
        turn always is. Raises TurnDeleted.
        """
        log = await self._log.subscribe(turn_id)
        try:
            while not self._tasks.draining:
                if _is_empty(log):
                    if (finished := await self._fill(log, turn_id)) is None:
                        continue
                    for batch in portions(finished.after(after)):
                        yield batch
                    return
                known = log.entries
                batch = entries_after(known, after, MAX_ENTRIES) if known else []
                del known
                if _has_new_entries(batch, after):
                    batch = next(portions(batch))
                elif log.fallback:
                    batch = fallback_entries(log, after)
                if _has_new_entries(batch, after):
                    after = batch[-1].log_position
                    yield batch
                    del batch  # frees it while waiting for the next
                elif log.ended:
                    for rest in portions(await self._entries_from_rows(log, after)):
                        yield rest
                    return
                elif sink and _is_caught_up(log, after):
                    if not self._tasks.draining and (
                        last := await log.write_directly(sink)
                    ):
                        after = last.log_position
                else:
                    await self._wait_for_change(log)
        finally:
            self._log.unsubscribe(log)

    async def _fill(self, log: TurnLog, turn_id: str) -> FinishedTurn | None:
        """The turn if it is finished; else None, once the log may have entries."""
        opened_at = self._new.pop(turn_id, -math.inf)
        is_new = self._tasks.loop.time() - opened_at < NEW_FOR
        if (is_new or turn_id in self._active_turns) and not log.is_over:
            await self._wait_for_change(log)  # a run will publish it
            return None
        found = await self._load(turn_id)
        if isinstance(found, FinishedTurn):
            return found
        if not found:
            # Nothing else would wake a subscriber to a turn that is over.
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_AGAIN):
                    await self._wait_for_change(log)
            return None
        if found == Turn.Status.WAITING:
            await self._republish(turn_id)
        if _is_empty(log):
            await self._wait_for_change(log)
        return None

    async def _wait_for_change(self, log: TurnLog) -> None:
        """Wait for a change of the log. A drain wakes all waiting subscribers only
        once, so a subscriber that comes later must not wait."""
        if not self._tasks.draining:
            await log.wait_for_change()

    def forget(self, turn_id: str) -> None:
        """Drop the events of a finished turn whose rows have changed."""
        self._finished_turns.pop(turn_id, None)

    async def end_deleted(self) -> None:
        """End the subscriptions to turns whose rows have been deleted. The end of a run
        wakes its subscribers, so only the others are checked."""
        logs = {log.turn_id: log for log in self._log.active_logs()}
        idle = logs.keys() - self._active_turns.keys()
        if not idle:
            return
        for turn_id in await self._database.read(claim_store.find_deleted, idle):
            logs[turn_id].is_over = True
            logs[turn_id].wake()

    async def is_at_end(self, turn_id: str, after: Position) -> bool:
        """True if the turn is over and has no entries after `after`."""
        log = self._log.get(turn_id)
        if log is not None and log.entries and not _is_from_rows(log, after):
            return log.ended and after >= log.entries[-1].log_position
        try:
            finished = await self._load_finished(turn_id)
        except TurnDeleted:
            return True
        return finished is not None and not finished.after(after)

    async def _load_finished(self, turn_id: str) -> FinishedTurn | None:
        """Raises TurnDeleted."""
        found = await self._load(turn_id)
        return found if isinstance(found, FinishedTurn) else None

    async def _load(self, turn_id: str) -> FinishedTurn | str:
        """The turn if it is finished; else its status, "" if that cannot be read.
        Raises TurnDeleted."""
        if (known := self._finished_turns.get(turn_id)) is not None:
            return known
        try:
            found = await self._database.read(replay_or_status, turn_id)
        except UNREACHABLE as exc:
            logger.warning("turn %s cannot be read: %s", turn_id, format_trace(exc))
            return ""
        if isinstance(found, str):
            return found
        # Hundreds of subscribers may ask at once; they share one object for as long as
        # they read.
        return self._finished_turns.setdefault(turn_id, found)

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
            if await self._database.write(claim_store.requeue_to_republish, turn_id):
                self._put(turn_id)


def _is_empty(log: TurnLog) -> bool:
    return log.is_over or not (log.entries or log.fallback)


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
