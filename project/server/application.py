"""ASGI application that routes to gateway, event streams, Django, demo provider and
WebSockets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from asgiref.sync import markcoroutinefunction
from django.conf import settings

from conversations.gateway import app as gateway
from conversations.gateway.http import Exchange
from conversations.gateway.websocket import route_gateway_first
from conversations.http.sse import App, StreamMiddleware
from conversations.streaming.routing import deny, route_page
from llm.demo.app import application as demo
from llm.telemetry import log_context
from llm.wire.items import new_id
from project.monitoring.request_spans import RequestSpans
from project.server.access_log import AccessLog
from project.server.django_handler import Handler
from project.server.lifespan import lifespan
from project.server.origin import is_own_origin

_http = StreamMiddleware(cast(App, Handler()))


def serve_http(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    path = scope["path"]
    if path.startswith(gateway.PREFIX) or path == "/v1":
        return gateway.serve(Exchange(scope, receive, send))
    if gateway.WITHOUT_PREFIX.fullmatch(path):
        return gateway.refuse_address(Exchange(scope, receive, send))
    if path == "/" and scope["method"] == "HEAD":
        # Coding agents check that the server is up before their first request.
        return Exchange(scope, receive, send).answer(200, None)
    if settings.ENABLE_DEMO and path.startswith("/demo/v1/"):
        return demo(scope, receive, send)
    return _http(scope, receive, send)


def serve_page_socket(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    """Return the awaitable instead of awaiting it: a coroutine that awaits here would
    take memory as long as the WebSocket is open."""
    if is_own_origin(scope):
        return route_page(scope, receive, send)
    return deny(receive, send)


def _wrap_http(app: Any) -> Any:
    if settings.ACCESS_LOG:
        app = AccessLog(app)
    return RequestSpans(app) if settings.TRACING else app


_needs_ids = settings.TRACING or settings.LOG_FORMAT == "json"
_applications: dict[str, Any] = {
    "http": _wrap_http(serve_http),
    "websocket": route_gateway_first(serve_page_socket),
    "lifespan": lifespan,
}


@markcoroutinefunction  # servers await what it returns
def application(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    if _needs_ids:  # in the context of the task that serves this request alone
        log_context.request_id.set(new_id("req"))
    awaited: Awaitable[None] = _applications[scope["type"]](scope, receive, send)
    return awaited
