"""Connections of Daphne that send what they are told at once, and keep little of it.

Twisted asks to be told when a socket can be written, and is told in the next round of
the event loop: two system calls and some thirty microseconds for each chunk of an
answer. Nearly always it can be written, so here it is tried first, at the end of the
round in which something was said: what was said together leaves together.

Daphne takes whatever it is given, and keeps what a client does not read. Here whoever
writes waits for a client that is slow, as with uvicorn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from twisted.internet import tcp

from conversations.engine import WRITE
from conversations.sse import GONE
from llm.connections import Few
from llm.wire import websocket
from project.compact import compact
from project.refusals import OrderlyChannel, OrderlyRequest, OrderlySocket

#: What a socket of Autobahn's does not look at once it is open.
_OF_THE_HANDSHAKE = (
    "_raw_query_string",
    "_wskey",
    "application_deferred",
    "clean_headers",
    "client_addr",
    "http_headers",
    "http_request_data",
    "http_request_host",
    "http_request_params",
    "http_request_path",
    "http_request_uri",
    "http_response_data",
    "http_status_line",
    "server_addr",
    "websocket_extensions",
    "websocket_extensions_in_use",
    "websocket_origin",
    "websocket_protocols",
    "websocket_protocol_in_use",
)
#: What nobody asks of a request once its answer is sent in chunks.
_OF_THE_REQUEST = (
    "_parsePOSTFormSubmission",
    "args",
    "clean_headers",
    "client",
    "client_addr",
    "client_scheme",
    "clientproto",
    "content",
    "cookies",
    "host",
    "notifications",
    "query_string",
    "received_cookies",
    "requestHeaders",
    "responseHeaders",
    "root_path",
    "server_addr",
    "transport",
)
_Connection: Any = tcp.Server  # whose methods have no types


FULL = 64 * 1024  # bytes that wait for a socket to take them; then writers wait, too


class PromptConnection(_Connection):
    _is_due = False  # to be sent at the end of this round
    _is_waiting = False  # for the socket to take more
    _drained: asyncio.Future[None] | None = None  # whom writers wait for
    logstr = repstr = "connection"  # one for all: nothing reads them

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        del self.logstr, self.repstr

    @property
    def is_full(self) -> bool:
        waits = len(self.dataBuffer) - self.offset + self._tempDataLen
        return bool(self.connected and waits > FULL)

    async def drain(self) -> None:
        """Returns once the socket takes more, or is closed."""
        while self.is_full:
            if self._drained is None:
                self._drained = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)

    def _wake(self) -> None:
        drained, self._drained = self._drained, None
        if drained is not None:
            drained.set_result(None)

    def doWrite(self) -> Any:
        done = super().doWrite()
        if self._drained is not None and not self.is_full:
            self._wake()
        return done

    def connectionLost(self, reason: Any) -> None:
        super().connectionLost(reason)
        self._wake()

    def write_now(self, data: bytes) -> None:
        """As `write`, and without waiting for the end of the round where it can."""
        waits = self.dataBuffer or self._tempDataBuffer
        if self.connected and not (waits or self.disconnecting):
            with suppress(OSError):  # `write` finds out in its own way
                data = data[self.socket.send(data) :]
        if data:
            self.write(data)

    def startWriting(self) -> None:
        if not (self._is_due or self._is_waiting):
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def stopWriting(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            super().stopWriting()

    def _send(self) -> None:
        self._is_due = False
        if self.disconnected:
            return
        # As the reactor does it, with all that may come of it.
        self.reactor._readOrWrite(self, False)
        if not self.disconnected and (self.dataBuffer or self._tempDataBuffer):
            self._is_waiting = True
            super().startWriting()


class PromptSocket(OrderlySocket):
    """A frame a message. Autobahn looks for what else a message may be, which takes as
    long as all the rest of its way. Of the handshake it keeps what the log of its end
    tells."""

    client_addr = server_addr = None

    def ways(self) -> dict[str, Any]:
        return {WRITE: self.write_now}

    def reply(self, message: Any) -> Awaitable[None]:
        return _reply(self, message)

    def onOpen(self) -> None:
        super().onOpen()
        self.request.headers.clear()
        own = self.__dict__
        own["send_queue"] = Few(own["send_queue"])
        # The channel that read the handshake, with all of it, and has no more to say.
        self.transport.unregisterProducer()
        shared = {"factory", "log", *vars(self.factory)} - {"server"}
        compact(self, self.factory, shared=shared, without=_OF_THE_HANDSHAKE)

    def serverSend(self, content: str | bytes, binary: bool = False) -> None:
        if self.state != self.STATE_OPEN:
            super().serverSend(content, binary)
            return
        data = content.encode() if isinstance(content, str) else content
        self.transport.write(websocket.frame(data, binary=binary))

    def write_now(self, frames: bytes) -> bool:
        """See `conversations.engine.WRITE`."""
        if self.state != self.STATE_OPEN or self.transport.is_full:
            return False
        self.transport.write_now(frames)
        return True


class PromptChannel(OrderlyChannel):
    """A connection that HTTP/1.1 is spoken over."""

    def keep_little(self) -> None:
        """While an answer of some length is sent."""
        shared = ("callLater", "factory", "requestFactory")
        compact(self, self.factory, shared=shared)


class PromptRequest(OrderlyRequest):
    """Once its answer is sent in chunks, it keeps what the end and the log of it
    tell."""

    client_addr = server_addr = None
    notifications: Any = ()
    _gone: Callable[[], None] | None = None

    def ways(self) -> dict[str, Any]:
        return {WRITE: self.write_now, GONE: self.watch}

    def reply(self, message: Any) -> Awaitable[None]:
        return _reply(self, message)

    def write_now(self, chunks: bytes) -> bool:
        """See `conversations.engine.WRITE`."""
        if self.finished or self._disconnected or not self.chunked:
            return False
        if self.channel.transport.is_full:
            return False
        if "requestHeaders" in self.__dict__:
            self._keep_little()
        self.sentLength += len(chunks)
        self.channel.transport.write_now(chunks)
        return True

    def _keep_little(self) -> None:
        self.content.close()
        compact(self, self.server, shared=("server",), without=_OF_THE_REQUEST)
        self.channel.keep_little()

    def watch(self, act: Callable[[], None]) -> None:
        """See `conversations.sse.GONE`."""
        if self._disconnected:
            act()
        else:
            self._gone = act

    def connectionLost(self, reason: Any) -> None:
        super().connectionLost(reason)
        act, self._gone = self._gone, None
        if act is not None:
            act()

    def finish(self) -> None:
        self._gone = None
        super().finish()


def _reply(protocol: Any, message: Any) -> Awaitable[None]:
    told: Awaitable[None] = protocol.server.handle_reply(protocol, message)
    return told
