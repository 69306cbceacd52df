"""Where PostgreSQL and Redis are, read from their addresses."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import environ

_POSTGRES = ("postgres", "postgresql", "pgsql")
_REDIS = ("redis", "rediss", "unix")
#: A process that stands still in the middle of a transaction keeps what it has locked,
#: and others wait. PostgreSQL ends that before they lose their own leases over it.
_STANDSTILL = "-c idle_in_transaction_session_timeout=5s"
#: To compile queries cost more than it saved: 200 searches over 60,000 messages took
#: 31 and 39 ms in the median without it, 43 and 51 ms with it (PostgreSQL 15.20, two
#: rounds, 2026-11-22).
_NO_JIT = "-c jit=off"


def is_postgres(url: str) -> bool:
    return urlsplit(url).scheme in _POSTGRES


def database(url: str) -> dict[str, Any]:
    """Django's settings for a PostgreSQL address. Raises ValueError with what is
    wrong."""
    try:
        found: dict[str, Any] = environ.Env.db_url_config(url)
        is_whole = bool(found["NAME"])
    except Exception as exc:  # django-environ raises whatever it stumbles over
        raise ValueError("cannot be read") from exc
    if not is_whole:
        raise ValueError("it names no database")
    return {
        **found,
        "ENGINE": "project.postgresql",
        # The server's threads stay, and so do their connections; one that PostgreSQL
        # has closed is noticed before it is used.
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": 5,  # seconds
            "application_name": "parley",
            "options": f"{_STANDSTILL} {_NO_JIT}",
            **found.get("OPTIONS", {}),
        },
    }


def is_redis(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_named = parts.scheme == "unix" or (
            bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
            # Redis' client takes what is no number for 0, where others may be at home.
            and re.fullmatch(r"/?|/[0-9]+", parts.path) is not None
        )
    except ValueError:
        return False
    return parts.scheme in _REDIS and is_named and not re.search(r"\s", url)


def channel_layer(redis_url: str) -> dict[str, Any]:
    if not redis_url:
        return {"BACKEND": "conversations.engine.local_layer.LocalLayer"}
    number = urlsplit(redis_url).path.strip("/") or "0"
    host = {"address": redis_url, "socket_timeout": 5, "socket_connect_timeout": 3}
    return {
        "BACKEND": "conversations.engine.layer.Layer",
        # Redis' databases share their channels.
        "CONFIG": {"hosts": [host], "prefix": f"parley{number}"},
    }
