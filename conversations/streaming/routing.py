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

from conversations.gateway.websocket import ResponsesConsumer
from conversations.streaming.consumers import ConversationConsumer

WebSocketApp = Callable[[Any, Any, Any], Awaitable[None]]

_PAGE = path("ws/conversations/<str:conversation_id>/", ConversationConsumer.as_asgi())
_responses: WebSocketApp = ResponsesConsumer.as_asgi()


def route_page(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    """Route the WebSocket of a conversation page; deny all other paths."""
    root, path = scope.get("root_path", ""), scope["path"]
    if path.startswith(root):
        match = _PAGE.pattern.match(path.removeprefix(root).lstrip("/"))
        if match:
            scope["url_route"] = {"args": (), "kwargs": match[2]}
            return ConversationConsumer()(scope, receive, send)
    denial: Awaitable[None] = WebsocketDenier()(scope, receive, send)
    return denial


def route_gateway_first(browser_app: WebSocketApp) -> WebSocketApp:
    """An app that routes `/v1/responses` to the gateway and all else to `browser_app`.

    Gateway clients authenticate by token and send no `Origin` header, so this stands
    before the origin check.
    """

    def route(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        is_gateway = scope["path"].rstrip("/") == "/v1/responses"
        return (_responses if is_gateway else browser_app)(scope, receive, send)

    return route
