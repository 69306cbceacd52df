"""Modules that every server imports, for processes that are forked from here.

None of them reads Django's settings, which each server has of its own.
"""

from __future__ import annotations

import gc
from importlib import import_module

MODULES = (
    "aiohttp",
    "annotated_types",
    "asgiref.sync",
    "channels",
    "channels_redis",
    "conversations.engine.event_log",
    "conversations.pages.markdown",
    "conversations.search.matching",
    "conversations.transfer.source",
    "conversations.turns.compactor",
    "conversations.turns.history",
    "cryptography.fernet",
    "django.contrib.postgres.fields.utils",
    "django.contrib.postgres.forms.array",
    "django.contrib.staticfiles",
    "django.core.handlers.asgi",
    "django.core.management",
    "django.db.migrations.executor",
    "django.db.models",
    "django.template",
    "django.test.signals",
    "docstring_parser",
    "environ",
    "fido2.arkg",
    "fido2.server",
    "fido2.webauthn",
    "httpx",
    "isodate",
    "jsonschema_rs",
    "llm.adaptation.adapt",
    "llm.demo.app",
    "llm.relay",
    "lxml.etree",
    "markdown_it",
    "nh3",
    "onelogin.saml2.settings",
    "orjson",
    "platformdirs",
    "procrastinate",
    "project.environment.provider_accounts",
    "project.server.uvicorn_server",
    "psycopg_pool",
    "pydantic",
    "pydantic.types",
    "pygments.lexers",
    "redis.asyncio",
    "requests",
    "scim2_filter_parser.parser",
    "smtplib",
    "sqlite3",
    "statistics",
    "tomllib",
    "tools.builtin.calculator",
    "tools.loop.loop",
    "tools.mcp.server_spec",
    "tools.registry",
    "uritemplate",
    "uvicorn",
    "uvloop",
    "websockets",
    "xmlsec",
    "yaml",
)
for name in MODULES:
    import_module(name)
gc.collect()
gc.freeze()  # so that a collection in a fork does not copy all of it
