"""Start-up and drain of the engine under Daphne, for `manage.py runserver`.

On SIGTERM or SIGINT the engine drains while Daphne still listens; the engine refuses
new turns. Then Twisted's reactor stops: Daphne cancels open responses, and WebSockets
end without a close code, after which a page reconnects.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any

from twisted.internet import reactor as twisted_reactor

from project.server import lifespan

reactor: Any = twisted_reactor  # chosen by Daphne when it was imported


class EngineUnderDaphne:
    """Starts the engine when Twisted's reactor starts. `failure` is the exception of
    the start, if it failed; the reactor has stopped then."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._previous: dict[int, Any] = {}  # Twisted's signal handlers

    def attach(self) -> None:
        """Call it before the reactor runs."""
        reactor.callLater(0, self._begin)  # once the event loop runs

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        self._create_task(self._start())
        if threading.current_thread() is not threading.main_thread():
            return  # the autoreloader handles signals

        def drain(number: int, frame: FrameType | None) -> None:
            for each, handler in self._previous.items():  # a second signal stops it
                signal.signal(each, handler)
            loop.call_soon_threadsafe(lambda: self._create_task(self._drain()))

        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, drain)

    def _create_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self) -> None:
        """Start the engine; earlier requests wait in `lifespan.start_on_demand`."""
        try:
            await lifespan.start_on_demand()
        except Exception as exc:  # Twisted would only log it
            self.failure = exc
            reactor.stop()

    async def _drain(self) -> None:
        try:
            if lifespan.is_started():
                await lifespan.drain()
                await lifespan.close()
        finally:
            reactor.stop()
