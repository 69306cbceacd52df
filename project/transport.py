"""Connections of Daphne that send what they are told at once.

Twisted asks to be told when a socket can be written, and is told in the next round of
the event loop: two system calls and some thirty microseconds for each chunk of an
answer. Nearly always it can be written, so here it is tried first, at the end of the
round in which something was said: what was said together leaves together.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from twisted.internet import tcp

from llm.connections import Few
from llm.wire import websocket
from project.refusals import OrderlyRequest, OrderlySocket

#: What a socket of Autobahn's does not look at once it is open.
_OF_THE_HANDSHAKE = (
    "_raw_query_string",
    "_wskey",
    "clean_headers",
    "http_headers",
    "http_request_data",
    "http_request_host",
    "http_request_params",
    "http_request_path",
    "http_request_uri",
    "http_response_data",
    "http_status_line",
    "websocket_extensions",
    "websocket_extensions_in_use",
    "websocket_origin",
    "websocket_protocols",
    "websocket_protocol_in_use",
)
_Connection: Any = tcp.Server  # whose methods have no types


class PromptConnection(_Connection):
    _is_due = False  # to be sent at the end of this round
    _is_waiting = False  # for the socket to take more

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

    def onOpen(self) -> None:
        super().onOpen()
        self.request.headers.clear()
        own = self.__dict__
        for name in _OF_THE_HANDSHAKE:
            own.pop(name, None)
        own["send_queue"] = Few(own["send_queue"])
        self.__dict__ = {}
        self.__dict__.update(own)  # which makes it as small as it can be

    def serverSend(self, content: str | bytes, binary: bool = False) -> None:
        if self.state != self.STATE_OPEN:
            super().serverSend(content, binary)
            return
        data = content.encode() if isinstance(content, str) else content
        self.transport.write(websocket.frame(data, binary=binary))

    def write_now(self, frames: bytes) -> bool:
        """See `conversations.engine.WRITE`."""
        if self.state != self.STATE_OPEN:
            return False
        self.transport.write_now(frames)
        return True


class PromptRequest(OrderlyRequest):
    def write_now(self, chunks: bytes) -> bool:
        """See `conversations.engine.WRITE`."""
        if self.finished or self._disconnected or not self.chunked:
            return False
        self.sentLength += len(chunks)
        self.channel.transport.write_now(chunks)
        return True
