"""The ASGI application for servers.

It starts the engine at the first request where the server has not done so before, as
Daphne knows no lifespan.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import Any

import django
from asgiref.sync import markcoroutinefunction
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)

# Its modules need Django to be set up.
_application = import_string("project.application.application")
_is_started = import_string("project.lifespan.is_started")
_start_on_demand = import_string("project.lifespan.start_on_demand")


@markcoroutinefunction  # as it is one to servers: what it returns is awaited
def application(scope: Any, receive: Any, send: Any) -> Awaitable[None]:
    is_ready = scope["type"] == "lifespan" or _is_started()
    serve = _application if is_ready else _start_and_serve
    awaited: Awaitable[None] = serve(scope, receive, send)
    return awaited


async def _start_and_serve(scope: Any, receive: Any, send: Any) -> None:
    await _start_on_demand()
    await _application(scope, receive, send)
