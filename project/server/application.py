"""ASGI application that routes to gateway, event streams, Django, demo provider and
WebSockets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from asgiref.sync import markcoroutinefunction
from django.conf import settings

from conversations.gateway.app import Gateway
from conversations.gateway.websocket import route_gateway_first
from conversations.http.sse import App, StreamMiddleware
from conversations.streaming.routing import deny, route_page
from llm.demo.app import application as demo
from project.server.access_log import AccessLog
from project.server.django_handler import Handler
from project.server.lifespan import lifespan
from project.server.origin import is_own_origin

_http = StreamMiddleware(cast(App, Handler()))


def serve_http(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    if settings.ENABLE_DEMO and scope["path"].startswith("/demo/v1/"):
        return demo(scope, receive, send)
    return _http(scope, receive, send)


def serve_page_socket(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    """Return the awaitable instead of awaiting it: a coroutine that awaits here would
    take memory as long as the WebSocket is open."""
    if is_own_origin(scope):
        return route_page(scope, receive, send)
    return deny(receive, send)


_gateway = Gateway(serve_http)
_applications: dict[str, Any] = {
    "http": AccessLog(_gateway) if settings.ACCESS_LOG else _gateway,
    "websocket": route_gateway_first(serve_page_socket),
    "lifespan": lifespan,
}


@markcoroutinefunction  # servers await what it returns
def application(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    awaited: Awaitable[None] = _applications[scope["type"]](scope, receive, send)
    return awaited
