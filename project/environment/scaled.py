"""Settings of PostgreSQL and Redis from DATABASE_URL and REDIS_URL."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import environ

_POSTGRES = ("postgres", "postgresql", "pgsql")
_REDIS = ("redis", "rediss", "unix")
#: A process that hangs within a transaction keeps its locks, and others wait for them.
#: PostgreSQL ends the transaction before the leases of the others expire (TURN_LEASE).
_IDLE_TIMEOUT = "-c idle_in_transaction_session_timeout=5s"
#: Compiling queries costs more than it saves: the median of 200 searches over 60,000
#: messages was 31 and 39 ms without it, 43 and 51 ms with it (PostgreSQL 15.20, two
#: rounds, 2026-11-22).
_NO_JIT = "-c jit=off"
#: When a connection is given up whose other end is silent: 15 s after the last answer
#: of the network, and not after the two hours of the kernel.
_LOST_AFTER = {
    "keepalives_idle": 5,  # seconds
    "keepalives_interval": 5,  # seconds
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,  # milliseconds
}
#: Executions after which PostgreSQL stores the plan of a statement (only those of
#: `DatabaseWrapper.prepared_cursor`). Planning takes it longer than running most.
_PREPARE = 3


def is_postgres(url: str) -> bool:
    return urlsplit(url).scheme in _POSTGRES


def database(url: str) -> dict[str, Any]:
    """Django's settings for a PostgreSQL address. The text of a ValueError says what is
    wrong with the address."""
    try:
        config: dict[str, Any] = environ.Env.db_url_config(url)
        has_name = bool(config["NAME"])
    except Exception as exc:  # django-environ raises many classes
        raise ValueError("cannot be read") from exc
    if not has_name:
        raise ValueError("it names no database")
    return {
        **config,
        "ENGINE": "project.postgresql",
        # The server's threads are permanent, so connections are reused. The health
        # check replaces one that PostgreSQL has closed.
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            "connect_timeout": 5,  # seconds
            **_LOST_AFTER,
            "application_name": "parley",
            "prepare_threshold": _PREPARE,
            "options": f"{_IDLE_TIMEOUT} {_NO_JIT}",
            **config.get("OPTIONS", {}),
        },
    }


def is_redis(url: str) -> bool:
    try:
        parts = urlsplit(url)
        has_valid_address = parts.scheme == "unix" or (
            bool(parts.hostname)
            and (parts.port is None or parts.port > 0)
            # redis-py reads a path that is no number as database 0, which may be the
            # database of another program.
            and re.fullmatch(r"/?|/[0-9]+", parts.path) is not None
        )
    except ValueError:
        return False
    return parts.scheme in _REDIS and has_valid_address and not re.search(r"\s", url)


def channel_layer(redis_url: str, *, is_scaled: bool) -> dict[str, Any]:
    engine = "conversations.engine"
    if not redis_url and is_scaled:
        return {"BACKEND": f"{engine}.postgresql.channel_layer.PostgresLayer"}
    if not redis_url:
        return {"BACKEND": f"{engine}.local_channel_layer.LocalLayer"}
    database_number = urlsplit(redis_url).path.strip("/") or "0"
    host = {"address": redis_url, "socket_timeout": 5, "socket_connect_timeout": 3}
    return {
        "BACKEND": f"{engine}.redis.channel_layer.RedisChannelLayer",
        # Redis' channels are common to all its databases.
        "CONFIG": {"hosts": [host], "prefix": f"parley{database_number}"},
    }
