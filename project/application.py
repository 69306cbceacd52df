"""What the server serves: the gateway, Django, streams, the demo provider,
WebSockets."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from asgiref.sync import markcoroutinefunction
from channels.security.websocket import WebsocketDenier
from django.conf import settings

from conversations.gateway.app import Gateway
from conversations.routing import page, programs_first
from conversations.sse import App, Streams
from llm.demo.app import application as demo
from project.access_log import AccessLog
from project.handler import Handler
from project.lifespan import lifespan
from project.origin import is_own_origin

streams = Streams(cast(App, Handler()))


def http(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    if settings.ENABLE_DEMO and scope["path"].startswith("/demo/v1/"):
        return demo(scope, receive, send)
    return streams(scope, receive, send)


def people(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    """Call, and do not await: what awaits here stays as long as the socket."""
    door = page if is_own_origin(scope) else WebsocketDenier()
    return door(scope, receive, send)


_gateway = Gateway(http)
_applications: dict[str, Any] = {
    "http": AccessLog(_gateway) if settings.ACCESS_LOG else _gateway,
    "websocket": programs_first(people),
    "lifespan": lifespan,
}


@markcoroutinefunction  # as it is one to servers: what it returns is awaited
def application(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    awaited: Awaitable[None] = _applications[scope["type"]](scope, receive, send)
    return awaited
