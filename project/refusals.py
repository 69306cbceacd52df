"""What makes no sense to Daphne is refused in order.

Daphne takes some of it for faults of its own, with a traceback in the log, and answers
with a page where an API should.
"""

from __future__ import annotations

import re
from typing import Any

from autobahn.websocket.types import ConnectionDeny
from daphne.http_protocol import WebRequest
from daphne.ws_protocol import WebSocketProtocol
from twisted.web.http import HTTPChannel

from project import server_errors

_Deny: Any = ConnectionDeny  # which has no types
_AUTHORITY = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
_Channel: Any = HTTPChannel  # whose methods have no types
_LINGER = 5.0  # seconds for a client that still sends to read why we do not


class OrderlySocket(WebSocketProtocol):
    def onConnect(self, request: Any) -> Any:
        """Raises ConnectionDeny."""
        if "server" in self.__dict__:
            raise _Deny(400, "Wait for the handshake to end.")
        if not request.headers.get("sec-websocket-protocol", "").isascii():
            raise _Deny(400, "Sec-WebSocket-Protocol is not ASCII.")
        return super().onConnect(request)

    def onClose(self, was_clean: bool, code: int | None, reason: str | None) -> None:
        """Of a handshake that was refused before `onConnect` nobody was told."""
        if "server" in self.__dict__:
            super().onClose(was_clean, code, reason)


class OrderlyChannel(_Channel):
    """Takes no body that is longer than any that is wanted. Twisted would keep all of
    it, on the disk, before anybody is asked."""

    _is_over = False  # whatever comes now is not looked at
    _lingering: Any = None

    def allHeadersReceived(self) -> None:
        if self.length is not None and self.length > self.factory.server.max_body:
            self.refuse_body()
        else:
            super().allHeadersReceived()

    def refuse_body(self) -> None:
        self._is_over, self.persistent = True, False
        self.requests[-1].refuse_body(self._command, self._path, self._version)

    def rawDataReceived(self, data: bytes) -> None:
        if not self._is_over:
            super().rawDataReceived(data)

    def allContentReceived(self) -> None:
        if not self._is_over:
            super().allContentReceived()

    def loseConnection(self) -> None:
        """A socket that is closed with bytes unread takes the answer with it."""
        if not self._is_over:
            super().loseConnection()
        elif self._lingering is None:
            self._networkProducer.unregisterProducer()
            self._lingering = self.callLater(_LINGER, self._abort)
            self.transport.loseWriteConnection()

    def _abort(self) -> None:
        self._lingering = None
        self.transport.abortConnection()

    def connectionLost(self, reason: Any) -> None:
        super().connectionLost(reason)
        if self._lingering is not None:
            self._lingering.cancel()


class OrderlyRequest(WebRequest):
    uri: bytes
    path: bytes

    def process(self) -> Any:
        # Anybody could say that we are somewhere else, in bytes that are a fault.
        self.requestHeaders.removeHeader(b"Daphne-Root-Path")
        self._find_path()
        return super().process()

    def _find_path(self) -> None:
        if absolute := _AUTHORITY.match(self.uri):  # RFC 9112: every server takes it
            self.uri = b"/" + self.uri[absolute.end() :].removeprefix(b"/")
        self.path = self.uri.partition(b"?")[0]

    def handleContentChunk(self, data: bytes) -> None:
        if self.finished:
            return
        if self.content.tell() + len(data) > self.server.max_body:
            self.channel.refuse_body()
        else:
            super().handleContentChunk(data)

    def refuse_body(self, method: bytes, uri: bytes, version: bytes) -> None:
        self.method, self.uri, self.clientproto = method, uri, version
        self._find_path()
        self.responseHeaders.setRawHeaders(b"Connection", [b"close"])
        self._answer(413, *server_errors.too_large(self.path, self.server.max_body))

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        """What Daphne says by itself."""
        phrase = status_text.decode()
        self._answer(status, *server_errors.error(self.path, status, phrase, body))

    def _answer(self, status: int, headers: server_errors.Headers, body: bytes) -> None:
        self.handle_reply(
            {"type": "http.response.start", "status": status, "headers": headers}
        )
        self.handle_reply({"type": "http.response.body", "body": body})
