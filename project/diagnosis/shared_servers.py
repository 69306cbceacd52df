"""Findings about PostgreSQL and Redis, which several processes share."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import psycopg
from django.conf import settings
from django.db import connection
from django.utils import timezone

from llm.db.connection_parameters import connection_parameters
from project.diagnosis.diagnosis import PATIENCE, Diagnosis, judge

if TYPE_CHECKING:
    from redis import Redis

_LARGEST_SKEW = 2  # seconds
_A_PROCESS = 17  # connections of a web process, the most (docs/scaling.md)
#: How the engine writes: by scripts.
_WRITE = "return redis.call('SET', KEYS[1], '', 'EX', 5)"
_KEY = "parley:doctor"
_CONNECTIONS = """
SELECT current_setting('max_connections')::int
    - current_setting('superuser_reserved_connections')::int
    - COALESCE(current_setting('reserved_connections', true)::int, 0),
    (SELECT sum(numbackends) FROM pg_stat_database)::int
"""


def examine_postgresql() -> Iterator[Diagnosis]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        yield judge_clock(cursor.fetchone()[0], timezone.now())
        cursor.execute(_CONNECTIONS)
        yield judge_connections(*cursor.fetchone())
        cursor.execute("SELECT current_setting('server_version_num')::int")
        yield judge_pg_dump(_read_pg_dump_version(), cursor.fetchone()[0] // 10_000)


def judge_clock(database: datetime, here: datetime) -> Diagnosis:
    skew = abs((database - here).total_seconds())
    return judge(
        "clock",
        skew <= _LARGEST_SKEW,
        f"This machine's clock and the database's differ by {skew:.0f} seconds.",
        "Let both follow a time server (NTP).",
        "warning",
    )


def judge_connections(limit: int, used: int) -> Diagnosis:
    """`limit`: of roles without privileges."""
    return judge(
        "connections",
        limit - used >= _A_PROCESS,
        f"PostgreSQL takes {limit} connections, and {used} are in use. A web process"
        f" needs up to {_A_PROCESS}.",
        "Raise max_connections, or put PgBouncer in session mode between.",
        "warning",
    )


def judge_pg_dump(version: str, server: int) -> Diagnosis:
    """`version`: what the program says of itself; `server`: its major version."""
    found = re.search(r" (\d+)", version)
    text = f"its pg_dump {version.rpartition(') ')[2]} is older than the server"
    return judge(
        "pg_dump",
        found is not None and int(found[1]) >= server,
        f"Backups fail on this machine: {text if found else 'it has no pg_dump'}.",
        f"Install PostgreSQL's client programs of version {server} or newer, or make"
        " backups elsewhere (docs/operations.md).",
        "warning",
    )


def _read_pg_dump_version() -> str:
    with suppress(OSError, subprocess.SubprocessError):
        command = ["pg_dump", "--version"]
        return subprocess.check_output(command, text=True, timeout=PATIENCE).strip()
    return ""


def examine_redis() -> Diagnosis:
    from redis import Redis
    from redis.exceptions import RedisError, ResponseError

    memory = {}
    try:
        with Redis.from_url(
            settings.REDIS_URL,
            socket_timeout=PATIENCE,
            socket_connect_timeout=PATIENCE,
        ) as client:
            client.ping()
            refuses_writes = _refuses_writes(client)
            with suppress(ResponseError):  # not allowed to this user
                memory = client.info("memory")
    except (RedisError, OSError):
        return Diagnosis(
            "redis",
            "error",
            "Redis cannot be reached, or refuses the password.",
            "Start it, and check REDIS_URL.",
        )
    if refuses_writes:
        return Diagnosis(
            "redis",
            "warning",
            "Redis refuses writes, so answers arrive once a second.",
            "Name its primary in REDIS_URL, give it memory (maxmemory) and room on its"
            " disk, and let its user run scripts and publish.",
        )
    policy = memory.get("maxmemory_policy", "noeviction")
    return judge(
        "redis",
        not memory.get("maxmemory") or policy == "noeviction",
        f"Redis drops keys when it is full (maxmemory-policy {policy}), also those of"
        " running answers.",
        "Set maxmemory-policy to noeviction.",
        "warning",
    )


def _refuses_writes(client: Redis) -> bool:
    from redis.exceptions import ResponseError

    try:
        client.eval(_WRITE, 1, _KEY)
        client.publish(_KEY, "")
    except ResponseError:
        return True
    return False


def examine_notifications() -> Diagnosis:
    """Whether PostgreSQL delivers what one connection sends to another."""
    parameters = connection_parameters()
    try:
        with (
            psycopg.connect(**parameters, autocommit=True) as listening,
            psycopg.connect(**parameters, autocommit=True) as sending,
        ):
            listening.execute("LISTEN parley_doctor")
            sending.execute("NOTIFY parley_doctor")
            notices = [*listening.notifies(timeout=PATIENCE, stop_after=1)]
    except psycopg.Error:
        notices = []
    return judge(
        "notifications",
        bool(notices),
        "PostgreSQL does not deliver notifications, so answers arrive once a second.",
        "Let PgBouncer pool sessions, or connect to PostgreSQL directly.",
        "warning",
    )
