"""Closes the PostgreSQL connections that the threads of a test have left open.

The threads of an event loop (of requests, of asgiref, of the gateway) end with the
test's loop without closing theirs. The garbage collector would find such a connection
in some later test, which then fails with psycopg's ResourceWarning.
"""

from __future__ import annotations

from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

_opened: list[BaseDatabaseWrapper] = []


def note(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Receiver of the signal `connection_created`."""
    if connection.vendor == "postgresql":
        _opened.append(connection)


def close_all() -> None:
    """Close those of all threads but this one."""
    own = {id(connection) for connection in connections.all(initialized_only=True)}
    while _opened:
        connection = _opened.pop()
        if id(connection) not in own:
            connection.inc_thread_sharing()
            connection.close()
