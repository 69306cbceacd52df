"""ASGI application.

A server without support for ASGI lifespan, such as Daphne, does not start the engine.
There the first request starts it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable
from typing import Any

import django
from asgiref.sync import markcoroutinefunction
from django.db import DatabaseError
from django.utils.module_loading import import_string

from project.startup.data_folder import InUse

logger = logging.getLogger(__name__)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)

# These modules import models, which need django.setup().
_application = import_string("project.server.application.application")
_is_started = import_string("project.server.lifespan.is_started")
_not_running = import_string("project.server.server_errors.not_running")
_reason = import_string("project.server.lifespan.reason")
_start_on_demand = import_string("project.server.lifespan.start_on_demand")


@markcoroutinefunction  # servers await what it returns
def application(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    is_ready = scope["type"] == "lifespan" or _is_started()
    serve = _application if is_ready else _start_and_serve
    awaited: Awaitable[None] = serve(scope, receive, send)
    return awaited


async def _start_and_serve(scope: Any, receive: Any, send: Any) -> None:
    try:
        await _start_on_demand()
    except (InUse, DatabaseError) as exc:
        logger.error("the engine does not start: %s", _reason(exc))
        await _refuse(scope, receive, send)
    else:
        await _application(scope, receive, send)


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close"})
        return
    headers, body = await asyncio.to_thread(_not_running, scope)
    lower = [(name.lower(), value) for name, value in headers]
    await send({"type": "http.response.start", "status": 503, "headers": lower})
    await send({"type": "http.response.body", "body": body})
