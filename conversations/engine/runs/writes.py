"""Database writes of a run, that complete even if the run is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from conversations.engine.database.executor import Database
from conversations.engine.event_log import StaleEpoch
from conversations.engine.runs.state import RunState

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True, eq=False, repr=False)
class RunWrites:
    state: RunState
    database: Database

    async def write(self, function: Callable[..., T], *args: Any) -> T:
        """Raises StaleEpoch. Raises CancelledError while the write continues all the
        same."""
        writing = asyncio.ensure_future(self.database.write(function, *args))
        self.state.writes += 1
        writing.add_done_callback(self._end_write)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(_log_error)
            raise

    def write_later(self, function: Callable[..., object], *args: Any) -> None:
        """Not awaited: a fenced run finds out with its next write."""
        self.database.write(function, *args).add_done_callback(_log_error)

    def _end_write(self, writing: asyncio.Future[Any]) -> None:
        self.state.writes -= 1


def _log_error(writing: asyncio.Future[Any]) -> None:
    """Log the error of a write that is no longer awaited; a later write meets the same
    fence."""
    exc = None if writing.cancelled() else writing.exception()
    if exc and not isinstance(exc, StaleEpoch):
        logger.error(
            "a write failed after the turn was stopped: %s", type(exc).__name__
        )
