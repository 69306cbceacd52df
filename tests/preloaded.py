"""Modules that every server imports, for processes that are forked from here.

None of them reads Django's settings, which each server has of its own.
"""

from __future__ import annotations

import gc
from importlib import import_module

MODULES = (
    "aiohttp",
    "asgiref.sync",
    "channels",
    "channels_redis",
    "conversations.engine.event_log",
    "conversations.pages.markdown",
    "tools.loop.loop",
    "cryptography.fernet",
    "django.contrib.staticfiles",
    "django.core.handlers.asgi",
    "django.core.management",
    "django.db.migrations.executor",
    "django.db.models",
    "django.template",
    "django.test.signals",
    "environ",
    "httpx",
    "jsonschema_rs",
    "llm.adaptation.adapt",
    "llm.demo.app",
    "llm.relay",
    "markdown_it",
    "nh3",
    "orjson",
    "procrastinate",
    "project.environment.provider_accounts",
    "project.server.uvicorn_server",
    "psycopg_pool",
    "pydantic",
    "pygments.lexers",
    "redis.asyncio",
    "requests",
    "uvicorn",
    "uvloop",
    "websockets",
    "yaml",
)
for name in MODULES:
    import_module(name)
gc.collect()
gc.freeze()  # so that a collection in a fork does not copy all of it
