"""ASGI application of a gateway process: what needs no engine, and refusals."""

from __future__ import annotations

import re
from collections.abc import Awaitable
from typing import Any

from conversations.gateway.app import refuse_elsewhere
from conversations.gateway.http import Exchange

#: The gateway itself refuses what concerns stored responses.
_SERVED = re.compile(
    r"/|/healthz|/readyz|/v1(?:/.*)?"
    r"|/(?:chat/completions|completions|embeddings|messages|models|responses)(?:/.*)?"
)


class StatelessPort:
    """Passes requests that need no engine to `application`, and refuses others with
    421, naming the address that serves them."""

    def __init__(self, application: Any, address: str) -> None:
        self._application = application
        self._address = address

    def __call__(self, scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        if scope["type"] == "websocket":
            return self._refuse_socket(scope, receive, send)
        path, method = scope["path"], scope["method"]
        if _SERVED.fullmatch(path) and (path != "/" or method == "HEAD"):
            served: Awaitable[None] = self._application(scope, receive, send)
            return served
        return refuse_elsewhere(Exchange(scope, receive, send), self._address)

    async def _refuse_socket(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()  # the handshake
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            await send({"type": "websocket.close"})
            return

        async def send_over_socket(message: Any) -> None:
            await send({**message, "type": f"websocket.{message['type']}"})

        request = {**scope, "type": "http", "method": "GET"}
        exchange = Exchange(request, receive, send_over_socket)
        await refuse_elsewhere(exchange, self._address)
