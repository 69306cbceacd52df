"""What the server serves: the gateway, Django, streams, the demo provider,
WebSockets."""

from __future__ import annotations

import os
from typing import Any, cast

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402
from django.conf import settings  # noqa: E402

from conversations.gateway.app import Gateway  # noqa: E402
from conversations.routing import programs_first, websocket_urlpatterns  # noqa: E402
from conversations.sse import App, Streams  # noqa: E402
from llm.demo.app import application as demo  # noqa: E402
from project.handler import Handler  # noqa: E402
from project.lifespan import lifespan  # noqa: E402

streams = Streams(cast(App, Handler()))


async def http(scope: Any, receive: Any, send: Any) -> None:
    if settings.ENABLE_DEMO and scope["path"].startswith("/demo/v1/"):
        await demo(scope, receive, send)
    else:
        await streams(scope, receive, send)


application = ProtocolTypeRouter(
    {
        "http": Gateway(http),
        "websocket": programs_first(
            AllowedHostsOriginValidator(
                AuthMiddlewareStack(URLRouter(websocket_urlpatterns))
            )
        ),
        "lifespan": lifespan,
    }
)
