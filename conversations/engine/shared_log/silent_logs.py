"""Subscribers of logs that have fallen silent, served from rows where these are ahead.

The storage of the events may be unavailable, refuse writes, or have lost events. A
process that has stood still for a moment sees the same: rows that are ahead of its
copies of the logs. So a copy must be found behind twice, and between the two looks the
storage must have been read, or have failed to be. A read that hangs is not awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import chain
from typing import NamedTuple, Protocol

from conversations.engine.event_log import Position
from conversations.engine.shared_log.database_fallback import (
    extend_fallback,
    last_position,
    recent_question_ids,
)
from conversations.engine.shared_log.subscriber import SharedTurnLog
from conversations.engine.shared_log.turns_from_rows import StoredTurn, StoredTurns

POLL_INTERVAL = 1.0  # seconds without events until a log counts as silent
MAX_LOOKS = 3  # at a copy that is behind, until a read that hangs counts as failed


class Copies(Protocol):
    """This process's copies of the shared log."""

    def active_logs(self) -> list[SharedTurnLog]: ...

    def request_read(self, turn_ids: Iterable[str]) -> None: ...


LoadTurns = Callable[[Mapping[str, Position], frozenset[str]], Awaitable[StoredTurns]]


class _Looks(NamedTuple):
    """At a copy that was behind, and has received nothing since the first of them."""

    position: Position  # at which the copy ended
    reads_begun: int  # of the copy, when the rows had been read
    times: int = 1


class SilentLogs:
    """`load_turns` is that of `turns_from_rows`."""

    def __init__(self, copies: Copies, load_turns: LoadTurns) -> None:
        self._copies = copies
        self._load_turns = load_turns
        self._loop = asyncio.get_running_loop()
        self._looks: dict[str, _Looks] = {}  # by turn

    async def poll(self) -> None:
        """Call it every POLL_INTERVAL."""
        quiet = self._loop.time() - POLL_INTERVAL
        logs = self._copies.active_logs()
        silent = {log.turn_id: log for log in logs if log.received_at < quiet}
        if not silent:
            self._looks.clear()
            return
        questions = chain.from_iterable(map(recent_question_ids, silent.values()))
        positions = {turn_id: last_position(log) for turn_id, log in silent.items()}
        found = await self._load_turns(positions, frozenset(questions))
        ahead = [silent[turn_id] for turn_id in (*found.over, *found.turns)]
        behind = [log for log in ahead if log.received_at < quiet]
        self._looks = {log.turn_id: self._look_at(log) for log in behind}
        self._copies.request_read(self._looks)
        for log in behind:
            if self._stays_behind(log):
                _serve_from_rows(log, found.turns.get(log.turn_id))

    def _look_at(self, log: SharedTurnLog) -> _Looks:
        before = self._looks.get(log.turn_id)
        if before is None or before.position != log.last_position:
            return _Looks(log.last_position, log.reads_begun)
        return before._replace(times=before.times + 1)

    def _stays_behind(self, log: SharedTurnLog) -> bool:
        """Whether a read that began after the first look has brought nothing."""
        looks = self._looks[log.turn_id]
        is_read = log.reads_ended > looks.reads_begun
        return bool(log.fallback) or is_read or looks.times >= MAX_LOOKS


def _serve_from_rows(log: SharedTurnLog, turn: StoredTurn | None) -> None:
    """`turn`: None if it is over."""
    if turn is None:
        log.is_over = True
        log.wake()
    elif extend_fallback(log, turn):
        log.wake()
