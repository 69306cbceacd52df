"""Statements that are run as plain SQL, without the ORM."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections, models

_DATETIME = models.DateTimeField()


def fetch_rows(sql: str, values: Sequence[Any] | None) -> list[tuple[Any, ...]]:
    with prepared_cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def prepared_cursor() -> Any:
    """A cursor for statements that are executed often: where Parley's own database
    backend is used (PostgreSQL), it stores their plans."""
    database = connections[DEFAULT_DB_ALIAS]
    return getattr(database, "prepared_cursor", database.cursor)()


def adapt_value(value: Any) -> Any:
    """A datetime as the database takes it; any other value unchanged."""
    if not isinstance(value, datetime):
        return value
    return _DATETIME.get_db_prep_value(value, connections[DEFAULT_DB_ALIAS])


def allow_long_idle() -> None:
    """Let PostgreSQL's current transaction, if there is one, idle longer. All others
    keep the few seconds of `project.environment.scaled`, after which PostgreSQL frees
    the locks of a process that hangs."""
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor == "postgresql" and database.in_atomic_block:
        with database.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '60s'")
