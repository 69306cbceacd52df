"""Uvicorn server of `manage.py serve`, with the engine's start-up and drain.

On SIGTERM or SIGINT the server stops listening, awaits `drain`, closes WebSockets with
1012 (service restart), gives open responses the rest of `grace` and awaits `close`; the
exit code is 0. A second signal ends the process at once, unless
`ends_at_second_signal` is false: unfinished turns are in the database, and the next
start resumes them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from project.server.direct_write import DirectWriteProtocol
from project.server.event_loop import new_event_loop

_LAST_GRACE = 1.0  # seconds for responses after a drain that took all of `grace`
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """`start` runs before the first connection."""

    start: Callable[[], Awaitable[None]]
    drain: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


class Server:
    def __init__(
        self,
        application: Any,
        hooks: Hooks,
        *,
        grace: float,  # seconds
        max_message: int,  # bytes of a WebSocket message
        ends_at_second_signal: bool = True,
    ) -> None:
        self._application = application
        self._ends_at_second_signal = ends_at_second_signal
        self._requests: set[asyncio.Task[Any]] = set()  # that are being served
        self._hooks = hooks
        self._grace = grace
        self._config = uvicorn.Config(
            self._track_request,
            interface="asgi3",
            lifespan="off",  # `Hooks` instead
            http="httptools",
            ws=DirectWriteProtocol,
            ws_max_size=max_message,
            ws_per_message_deflate=False,  # costs memory and CPU a connection
            proxy_headers=False,  # `client_address` reads them
            server_header=False,
            headers=[("Server", "parley")],
            log_config=None,  # Django's LOGGING
            log_level="error",  # its warnings concern invalid requests
            access_log=False,  # see `project.server.access_log`
        )

    def serve_at(
        self, listening: socket.socket, on_started: Callable[[], None]
    ) -> None:
        """Run until a signal arrives. Raises the exceptions of the hooks.

        The server calls `on_started` once it accepts connections.
        """
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve(listening, on_started))

    async def _serve(
        self, listening: socket.socket, on_started: Callable[[], None]
    ) -> None:
        is_stopping = asyncio.Event()
        server = _Uvicorn(
            self._config, _stop_once(is_stopping, ends=self._ends_at_second_signal)
        )
        for number in _SIGNALS:
            signal.signal(number, server.handle_exit)
        try:
            await self._hooks.start()
            serving = asyncio.create_task(server.serve([listening]))
            on_started()  # the socket listens already
            await _wait_for_first(is_stopping, serving)
            await self._drain(server, serving)
        finally:
            await self._hooks.close()

    async def _drain(self, server: _Uvicorn, serving: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        server.stop_listening()
        try:
            await self._hooks.drain()
        finally:
            grace: Any = max(deadline - loop.time(), _LAST_GRACE)
            self._config.timeout_graceful_shutdown = grace
            server.should_exit = True
            await serving
            # Uvicorn cancels the remaining requests, and does not wait for them.
            if self._requests:
                await asyncio.wait(self._requests, timeout=_LAST_GRACE)

    def _track_request(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        served: Awaitable[None] = self._application(scope, receive, send)
        return served


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_signal: Callable[[int], None]):
        super().__init__(config)
        self._on_signal = on_signal

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Unlike uvicorn's, does not end the server before the engine has drained, and
        does not raise the signal again at the end: the exit code is 0."""
        self._on_signal(sig)

    def stop_listening(self) -> None:
        for server in getattr(self, "servers", ()):  # none if it has yet to start
            server.close()


def _stop_once(is_stopping: asyncio.Event, *, ends: bool) -> Callable[[int], None]:
    """Return a signal handler: the first signal stops the server, a second one ends the
    process if `ends`, else does nothing."""
    loop, signals = asyncio.get_running_loop(), list[int]()

    def stop(number: int) -> None:
        if signals:
            if ends:
                os._exit(128 + number)
            return
        signals.append(number)
        loop.call_soon_threadsafe(is_stopping.set)

    return stop


async def _wait_for_first(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Raises the exception of the task."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    if task.done():
        task.result()
