"""Routing of the pages' WebSockets to their consumer.

The router returns the consumer's awaitable instead of awaiting it, so no router frame
stays in memory while the socket is open. Channels' own routers await it, and each holds
a copy of the scope.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from django.urls import path

from conversations.streaming.consumers import ConversationConsumer

_PAGE = path("ws/conversations/<str:conversation_id>/", ConversationConsumer.as_asgi())


def route_page(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    """Route the WebSocket of a conversation page; deny all other paths."""
    root, path = scope.get("root_path", ""), scope["path"]
    if path.startswith(root):
        match = _PAGE.pattern.match(path.removeprefix(root).lstrip("/"))
        if match:
            scope["url_route"] = {"args": (), "kwargs": match[2]}
            return ConversationConsumer()(scope, receive, send)
    return deny(receive, send)


async def deny(receive: Any, send: Any) -> None:
    """Refuse the handshake; servers answer it with 403."""
    await receive()
    await send({"type": "websocket.close"})
