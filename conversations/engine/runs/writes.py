"""Database writes of a run, that complete even if the run is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from conversations.engine import turn_store
from conversations.engine.database.executor import Database, DatabaseClosed
from conversations.engine.event_log import StaleEpoch
from conversations.engine.progress_store import TurnProgress
from conversations.engine.runs.state import RunState
from llm.db.outages import UNREACHABLE

logger = logging.getLogger(__name__)

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0  # seconds between attempts; each doubles it
_LOST = (StaleEpoch, *UNREACHABLE)


@dataclass(slots=True, eq=False, repr=False)
class RunWrites:
    state: RunState
    database: Database
    #: The write that was not awaited to its end, as the run was stopped.
    abandoned: asyncio.Future[Any] | None = None
    _abandoned_progress: TurnProgress | None = None

    async def write(self, function: Callable[..., T], *args: Any) -> T:
        """Raises StaleEpoch. Raises CancelledError while the write continues all the
        same: `settle` awaits it. What a failed write was to store counts as not
        written."""
        writing = asyncio.ensure_future(self.database.write(function, *args))
        self.state.writes += 1
        writing.add_done_callback(self._end_write)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(_log_error)
            self.abandoned, self._abandoned_progress = writing, _progress_in(args)
            raise
        except _LOST:
            self.state.give_back(_progress_in(args))
            raise

    async def settle(self) -> None:
        """Await the write that a stop has left. If the database was lost, the end of
        the turn stores its progress."""
        writing, self.abandoned = self.abandoned, None
        progress, self._abandoned_progress = self._abandoned_progress, None
        if writing is not None:
            await asyncio.wait([writing])
            if not writing.cancelled() and isinstance(writing.exception(), _LOST):
                self.state.give_back(progress)

    async def record_lost_calls(
        self, pause: Callable[[float], Awaitable[bool]]
    ) -> None:
        """Record the provider calls of a run that may not write its turn any more: they
        are paid all the same. Gives up when `pause` returns False."""
        await self.settle()
        made, seconds = self.state.take_calls_made(), FIRST_PAUSE
        while made:
            try:
                await self.database.write(
                    turn_store.record_calls, self.state.claim, made
                )
                return
            except UNREACHABLE as exc:
                if seconds > LONGEST_PAUSE or not await pause(seconds):
                    name = type(exc).__name__
                    logger.error("%d calls are not on record: %s", len(made), name)
                    return
                seconds *= 2

    def write_later(self, function: Callable[..., object], *args: Any) -> None:
        """Begin a write that nothing awaits: a run that has lost its claim notices at
        its next write. Does nothing at the end of a drain; the run that continues the
        turn writes it."""
        with suppress(DatabaseClosed):
            self.database.write(function, *args).add_done_callback(_log_error)

    def _end_write(self, writing: asyncio.Future[Any]) -> None:
        self.state.writes -= 1


def _progress_in(arguments: tuple[Any, ...]) -> TurnProgress | None:
    return next((each for each in arguments if isinstance(each, TurnProgress)), None)


def _log_error(writing: asyncio.Future[Any]) -> None:
    """Log the error of a write that nobody awaits. A later write meets the same fence;
    `settle` handles other failures after a stop."""
    exc = None if writing.cancelled() else writing.exception()
    if exc and not isinstance(exc, StaleEpoch):
        logger.error("a write that nobody awaits failed: %s", type(exc).__name__)
