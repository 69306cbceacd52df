"""What makes no sense to Daphne is refused in order.

Daphne takes some of it for faults of its own, with a traceback in the log, and answers
with a page where an API should.
"""

from __future__ import annotations

import re
from typing import Any

import orjson
from autobahn.websocket.types import ConnectionDeny
from daphne.http_protocol import WebRequest
from daphne.ws_protocol import WebSocketProtocol

_Deny: Any = ConnectionDeny  # which has no types
_AUTHORITY = re.compile(rb"https?://[^/?]*", re.IGNORECASE)
_APIS = (b"/api/", b"/v1/")


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


class OrderlyRequest(WebRequest):
    uri: bytes
    path: bytes

    def process(self) -> Any:
        # Anybody could say that we are somewhere else, in bytes that are a fault.
        self.requestHeaders.removeHeader(b"Daphne-Root-Path")
        if absolute := _AUTHORITY.match(self.uri):  # RFC 9112: every server takes it
            self.uri = b"/" + self.uri[absolute.end() :].removeprefix(b"/")
            self.path = self.uri.partition(b"?")[0]
        return super().process()

    def basic_error(self, status: int, status_text: bytes, body: str) -> None:
        """What Daphne says by itself, in the form of the place it was asked at."""
        told, kind = f"{status_text.decode()}: {body}".encode(), b"text/plain"
        if self.path.startswith(_APIS):
            fault = "server_error" if status >= 500 else "invalid_request_error"
            error = {"message": body, "type": fault, "param": None, "code": None}
            told, kind = orjson.dumps({"error": error}), b"application/json"
        headers = [(b"Content-Type", kind), (b"Content-Length", b"%d" % len(told))]
        self.handle_reply(
            {"type": "http.response.start", "status": status, "headers": headers}
        )
        self.handle_reply({"type": "http.response.body", "body": told})
