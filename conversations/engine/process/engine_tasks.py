"""The engine's tasks: turns, periodic work, notifications."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import Any

from conversations.engine.database.disk_space import report_full
from conversations.engine.database.executor import is_database_unavailable
from conversations.throttled_warning import ThrottledWarning
from tools.execute import format_trace

logger = logging.getLogger(__name__)

#: For callbacks that read no context variables: without it, each callback holds a
#: context of its own.
_EMPTY_CONTEXT = Context()


class EngineTasks:
    """Created on the engine's event loop. `stop` ends the periodic work."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.draining = False  # no more turns start
        self.is_stopped = False
        self._stopped = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._forget = self._tasks.discard
        self._disk_full_warning = ThrottledWarning(
            logger, "no room on the disk for the engine's %s"
        )

    def create(
        self, coroutine: Coroutine[Any, Any, None], *, name: str
    ) -> asyncio.Task[None]:
        # In a context of its own: otherwise a run would hold everything that the
        # request which started it has put into context variables.
        task = self.loop.create_task(coroutine, name=name, context=Context())
        self._tasks.add(task)  # or it might be freed before it is done
        task.add_done_callback(self._forget, context=_EMPTY_CONTEXT)
        return task

    def add(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until it is done; a drain waits for it."""
        self._tasks.add(task)
        task.add_done_callback(self._forget, context=_EMPTY_CONTEXT)

    def with_names(self, *names: str) -> list[asyncio.Task[Any]]:
        return [task for task in self._tasks if task.get_name() in names]

    async def every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        """Call `act` again and again, whatever it raises, until `stop`."""
        while True:
            # Jitter, so that many processes do not query at the same moment.
            pause = seconds * random.uniform(0.9, 1.1)
            if not await self.pause(pause):
                return
            try:
                await act()
            except Exception as exc:
                # The database may be available again at the next beat; a lease outlasts
                # several.
                self._log_failure(act, exc)

    async def pause(self, seconds: float) -> bool:
        """Wait. Returns False as soon as the periodic work ends."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)
            return False
        return True

    def _log_failure(self, act: Callable[..., object], exc: Exception) -> None:
        name = act.__name__
        if report_full(exc):
            self._disk_full_warning.log(name)
        elif is_database_unavailable(exc):
            logger.warning("no database for the engine's %s", name)
        else:
            logger.error("the engine's %s failed: %s", name, format_trace(exc))

    def stop(self) -> None:
        self.is_stopped = True
        self._stopped.set()

    async def cancel(self, *names: str) -> None:
        """Cancel the tasks of these names, and wait for the end of all, also of those
        that the last ones create."""
        while tasks := list(self._tasks):
            for task in self.with_names(*names):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
