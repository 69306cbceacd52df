"""Uvicorn server of `manage.py serve`, with the engine's start-up and drain.

On SIGTERM or SIGINT the server stops listening, awaits `drain`, closes WebSockets with
1012 (service restart), gives open responses the rest of `grace` and awaits `close`; the
exit code is 0. A second signal ends the process at once: unfinished turns are in the
database, and the next start resumes them.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn

from project.server.direct_write import DirectWriteProtocol

_LAST_GRACE = 1.0  # seconds for responses after a drain that took all of `grace`


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """`start` runs before the first connection."""

    start: Callable[[], Awaitable[None]]
    drain: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


class Server(uvicorn.Server):
    def __init__(
        self,
        application: Any,
        hooks: Hooks,
        *,
        grace: float,  # seconds
        max_message: int,  # bytes of a WebSocket message
    ) -> None:
        super().__init__(
            uvicorn.Config(
                application,
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
        )
        self._hooks = hooks
        self._grace = grace
        self._on_started: Callable[[], None] = lambda: None

    def serve_at(
        self, listening: socket.socket, on_started: Callable[[], None]
    ) -> None:
        """Run until a signal arrives. Raises the exceptions of the hooks.

        The server calls `on_started` once it accepts connections.
        """
        self._on_started = on_started
        self.run(sockets=[listening])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._hooks.start()
        await super().startup(sockets)
        self._on_started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Unlike uvicorn's, does not store the signal to raise it again at the end: a
        drained server exits with 0."""
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        for server in self.servers:
            server.close()
        try:
            await self._hooks.drain()
            grace: Any = max(deadline - loop.time(), _LAST_GRACE)
            self.config.timeout_graceful_shutdown = grace
            await super().shutdown(sockets)
            # Uvicorn cancels the remaining tasks, and does not wait for them.
            if tasks := set(self.server_state.tasks):
                await asyncio.wait(tasks, timeout=_LAST_GRACE)
        finally:
            await self._hooks.close()
