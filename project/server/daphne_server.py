"""Daphne server of `manage.py runserver`, with the engine's start-up and drain.

On SIGTERM or SIGINT the server stops listening, drains the engine, closes WebSockets
with 1012 (service restart) and gives open responses `DRAIN_GRACE` seconds to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import daphne.server
from daphne.ws_protocol import WebSocketProtocol
from django.conf import settings
from twisted.internet import defer, reactor

from project.server import lifespan

_SERVICE_RESTART = 1012  # WebSocket close code: reconnect in a moment


class Server(daphne.server.Server):
    def run(self) -> None:
        """Raises the exception of the engine's start, if it failed."""
        self._ports: list[Any] = []
        self._failure: Exception | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        reactor.callWhenRunning(lambda: self._create_task(self._start()))
        super().run()
        if self._failure is not None:
            raise self._failure

    def listen_success(self, port: Any) -> None:
        super().listen_success(port)
        self._ports.append(port)

    def kill_all_applications(self) -> defer.Deferred[None]:
        """Drain. Twisted calls this before it stops, and waits for the result."""
        return defer.Deferred.fromFuture(self._create_task(self._drain()))

    def _create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _start(self) -> None:
        """Start the engine; earlier requests wait in `lifespan.start_on_demand`."""
        try:
            await lifespan.start_on_demand()
        except Exception as exc:
            self._failure = exc
            self.stop()

    async def _drain(self) -> None:
        for port in self._ports:
            port.stopListening()
        if not lifespan.is_started():
            return
        await lifespan.drain()
        for protocol in list(self.connections):
            if isinstance(protocol, WebSocketProtocol) and protocol.state == (
                protocol.STATE_OPEN
            ):
                # sendClose() refuses the codes that only a server may use.
                protocol.sendCloseFrame(code=_SERVICE_RESTART)
        applications = [
            details["application_instance"]
            for details in self.connections.values()
            if "application_instance" in details
        ]
        if applications:
            await asyncio.wait(applications, timeout=settings.DRAIN_GRACE)
        for application in applications:
            application.cancel()
        await lifespan.close()
