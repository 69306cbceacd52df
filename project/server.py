"""Daphne with what an ASGI lifespan would give: a start-up and a drain.

On SIGTERM or SIGINT the server stops listening, awaits `drain`, gives open responses
`grace` seconds to end, closes WebSockets with 1012 (service restart) and awaits
`close`. A second signal ends the process at once: what ran is in the database, and the
next start goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from twisted.internet import asyncioreactor, defer

with suppress(ImportError):  # uvloop has no wheel for some platforms
    import uvloop

    # Daphne keeps the reactor that it finds as it is imported.
    asyncioreactor.install(uvloop.new_event_loop())

import daphne.server
from daphne.http_protocol import HTTPFactory
from daphne.ws_protocol import WebSocketProtocol
from twisted.internet import reactor

from project.inbox import Inbox
from project.transport import (
    PromptChannel,
    PromptConnection,
    PromptRequest,
    PromptSocket,
)

_SERVICE_RESTART = 1012  # WebSocket close code: come back in a moment
_LAST_GRACE = 1.0  # seconds for applications that were told to end
_REQUEST_PIECE = 64 * 1024  # bytes of a request's body in one ASGI message

_log = logging.getLogger(__name__)
_access_log = logging.getLogger("project.access")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """`start` comes before the first connection."""

    start: Callable[[], Awaitable[None]]
    drain: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


class _Factory(HTTPFactory):
    """Of connections that speak HTTP/1.1 and nothing else, which need not be asked what
    they speak."""

    protocol = PromptChannel

    def buildProtocol(self, addr: Any) -> Any:
        protocol = super().buildProtocol(addr)
        protocol.requestFactory = _request
        return protocol

    def log(self, request: Any) -> None:
        """See `log_access`."""


#: Leaves forms to the application. Twisted reads them, too, while all others wait, and
#: answers those that make no sense without a word.
_request = partial(PromptRequest, parsePOSTFormSubmission=False)


class Server(daphne.server.Server):
    def __init__(
        self,
        application: Any,
        listening: socket.socket,
        hooks: Hooks,
        *,
        grace: float,  # seconds
        max_body: int,  # bytes of a request
        **options: Any,
    ) -> None:
        super().__init__(
            application,
            endpoints=[listening],
            signal_handlers=False,
            ready_callable=self._when_ready,
            request_buffer_size=_REQUEST_PIECE,
            websocket_timeout=-1,  # a chat may stay open for days
            server_name="parley",
            **options,
        )
        # Daphne asks for endpoints, but there is none to open: `listening` is open.
        self.endpoints.clear()
        self._listening = listening
        self._hooks = hooks
        self._grace = grace
        self.max_body = max_body
        self._started: Callable[[], None] = lambda: None
        self._port: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: Exception | None = None

    def serve(self, started: Callable[[], None]) -> None:
        """Run until a signal comes. Raises what a hook raised.

        `started` is called once connections are answered.
        """
        self._started = started
        self.run()
        if self._failure:
            raise self._failure

    def kill_all_applications(self) -> defer.Deferred[None]:
        """Twisted calls this before it stops, and waits for it."""
        return defer.Deferred.fromFuture(self._task(self._drain()))

    def create_application(self, protocol: Any, scope: dict[str, Any]) -> Any:
        """As Daphne's, with a smaller queue, and ways past it."""
        told = self.connections.get(protocol)
        if told is None:
            return None
        inbox = Inbox(source=protocol.transport if _is_websocket(protocol) else None)
        scope |= {"asgi": {"version": "3.0"}, "extensions": protocol.ways()}
        answer = self.application(
            scope=scope, receive=inbox.receive, send=protocol.reply
        )
        told["application_instance"] = asyncio.ensure_future(answer)
        return inbox

    async def handle_reply(self, protocol: Any, message: dict[str, Any]) -> None:
        """As Daphne's; who sends much waits until it is read."""
        await super().handle_reply(protocol, message)
        if message["type"] == "websocket.send" or message.get("more_body"):
            owner = protocol if _is_websocket(protocol) else protocol.channel
            if owner is not None and owner.transport is not None:
                await owner.transport.drain()

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._keep_failure(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep_failure(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as exc:
            self._failure = exc  # for run()
            self.stop()

    def application_checker(self) -> None:
        """Daphne's housekeeping. It would answer 500 to a fault in the middle of an
        answer, fail at that, and never be called again; we cut such an answer off."""
        for protocol, details in list(self.connections.items()):
            application = details.get("application_instance")
            if _is_request(protocol) and _failed_midway(protocol, application):
                del details["application_instance"]
                fault = application.exception()
                _log.error("An answer was cut off by a fault.", exc_info=fault)
                if protocol.channel is not None:
                    protocol.channel.loseConnection()
        super().application_checker()

    # Starting

    def _when_ready(self) -> None:
        reactor.callWhenRunning(lambda: self._task(self._start()))

    async def _start(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        await self._hooks.start()
        self.ws_factory.protocol = PromptSocket
        with self._listening as listening:  # Twisted works on a copy of it
            self._port = reactor.adoptStreamPort(
                listening.fileno(), listening.family, _Factory(self)
            )
        self._port.transport = PromptConnection
        self._started()

    # Stopping

    def _on_signal(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(
                number, os._exit, 128 + number
            )
        self.stop()

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace
        if self._port:
            self._port.stopListening()
        try:
            await self._hooks.drain()
            grace = max(deadline - loop.time(), _LAST_GRACE)
            await _ended(self._applications(_is_request), grace)
            await self._hang_up()
        finally:
            await self._hooks.close()

    async def _hang_up(self) -> None:
        for protocol in list(self.connections):
            if _is_websocket(protocol) and protocol.state == protocol.STATE_OPEN:
                # sendClose() refuses the codes that only a server may use.
                protocol.sendCloseFrame(code=_SERVICE_RESTART)
        await _ended(self._applications(_is_websocket), _LAST_GRACE)
        left = self._applications(lambda protocol: True)
        for application in left:
            application.cancel()
        await _ended(left, _LAST_GRACE)

    def _applications(
        self, wanted: Callable[[object], bool]
    ) -> list[asyncio.Future[None]]:
        return [
            details["application_instance"]
            for protocol, details in self.connections.items()
            if wanted(protocol) and "application_instance" in details
        ]


def log_access(protocol: Any, action: str, details: dict[str, Any]) -> None:
    """One line a request, without the query, in which a client may send anything."""
    if action == "complete":
        _access_log.info(
            "%s %s %s, %d bytes, %.0f ms",
            details["method"],
            details["path"].partition("?")[0],
            details["status"],
            details["size"],
            details["time_taken"] * 1000,
        )


async def _ended(applications: list[asyncio.Future[None]], grace: float) -> None:
    if applications:
        await asyncio.wait(applications, timeout=grace)


def _failed_midway(request: Any, application: asyncio.Future[None] | None) -> bool:
    return bool(
        application
        and application.done()
        and not application.cancelled()
        and application.exception()
        and request._response_started
    )


def _is_websocket(protocol: object) -> bool:
    return isinstance(protocol, WebSocketProtocol)


def _is_request(protocol: object) -> bool:
    return not _is_websocket(protocol)
