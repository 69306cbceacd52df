"""Which consumer a WebSocket is for.

Whatever a router awaits stays there as long as the socket does, with all it holds. So
these call what comes next, and are gone; Channels' own would await it, each with a copy
of the scope.
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
    """The socket of an open page. There is none anywhere else."""
    root, path = scope.get("root_path", ""), scope["path"]
    if path.startswith(root):
        match = _PAGE.pattern.match(path.removeprefix(root).lstrip("/"))
        if match:
            scope["url_route"] = {"args": (), "kwargs": match[2]}
            return ConversationConsumer()(scope, receive, send)
    refused: Awaitable[None] = WebsocketDenier()(scope, receive, send)
    return refused


def programs_first(browsers: Socket) -> Socket:
    """The socket of programs, which show a token and have no origin; all others are for
    `browsers`."""

    def route(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        is_ours = scope["path"].rstrip("/") == "/v1/responses"
        return (_responses if is_ours else browsers)(scope, receive, send)

    return route
