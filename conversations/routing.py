from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.urls import path

from conversations.consumers import ConversationConsumer
from conversations.gateway.consumer import ResponsesConsumer

websocket_urlpatterns = [
    path("ws/conversations/<str:conversation_id>/", ConversationConsumer.as_asgi()),
]

Socket = Callable[[Any, Any, Any], Awaitable[None]]
_responses: Socket = ResponsesConsumer.as_asgi()


def programs_first(browsers: Socket) -> Socket:
    """The socket of programs, which show a token and have no origin; all others are for
    `browsers`."""

    def route(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
        is_ours = scope["path"].rstrip("/") == "/v1/responses"
        return (_responses if is_ours else browsers)(scope, receive, send)

    return route
