"""Routing of WebSockets to consumers.

These routers return the consumer's awaitable instead of awaiting it, so no router frame
stays in memory while the socket is open. Channels' own routers await it, and each holds
a copy of the scope.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.security.websocket import WebsocketDenier
from django.urls import path

from conversations.consumers import ConversationConsumer
from conversations.gateway.consumer import ResponsesConsumer

Socket = Callable[[Any, Any, Any], Awaitable[None]]

_PAGE = path("ws/conversations/<str:conversation_id>/", ConversationConsumer.as_asgi())
_responses: Socket = ResponsesConsumer.as_asgi()


def page(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    """Route the WebSocket of a conversation page; deny all other paths."""
    root, path = scope.get("root_path", ""), scope["path"]
    if path.startswith(root):
        match = _PAGE.pattern.match(path.removeprefix(root).lstrip("/"))
        if match:
            scope["url_route"] = {"args": (), "kwargs": match[2]}
            return ConversationConsumer()(scope, receive, send)
    refused: Awaitable[None] = WebsocketDenier()(scope, receive, send)
    return refused


def programs_first(browsers: Socket) -> Socket:
    """An app that routes `/v1/responses` to the gateway and all else to `browser_app`.

    Gateway clients authenticate by token and send no `Origin` header, so this stands
    before the origin check.
    """

    def route(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        is_ours = scope["path"].rstrip("/") == "/v1/responses"
        return (_responses if is_ours else browsers)(scope, receive, send)

    return route
