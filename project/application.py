"""What the server serves: the gateway, Django, streams, the demo provider,
WebSockets."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from channels.routing import URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.conf import settings

from conversations.gateway.app import Gateway
from conversations.routing import programs_first, websocket_urlpatterns
from conversations.sign_in import signed_in
from conversations.sse import App, Streams
from llm.demo.app import application as demo
from project.handler import Handler
from project.lifespan import lifespan
from project.uvicorn import with_write

streams = Streams(cast(App, Handler()))


async def http(scope: Any, receive: Any, send: Any) -> None:
    if settings.ENABLE_DEMO and scope["path"].startswith("/demo/v1/"):
        await demo(scope, receive, send)
    else:
        await streams(scope, receive, send)


_people = AllowedHostsOriginValidator(signed_in(URLRouter(websocket_urlpatterns)))
# Each origin is judged once; ours is nearly everybody's.
_judge = lru_cache(maxsize=1024)(_people.valid_origin)
_people.valid_origin = _judge

_applications: dict[str, Any] = {
    "http": Gateway(http),
    "websocket": programs_first(_people),
    "lifespan": lifespan,
}


async def application(scope: Any, receive: Any, send: Any) -> None:
    await _applications[scope["type"]](with_write(scope, send), receive, send)
