"""Raw SQL on the default database, for queries that every message makes.

Django's cursor inspects each statement a dozen times on its way to SQLite, which takes
ten times as long as SQLite itself. If nothing logs or wraps statements, they go
directly to SQLite, on the same connection and in the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

Row = tuple[Any, ...]
_MAX_CACHED_LENGTH = 4_000  # characters


def fetch_rows(sql: str, values: Sequence[Any] | None) -> list[Row]:
    """All rows. Values and columns are in the database's types; see `adapt_value`."""
    connection = connections[DEFAULT_DB_ALIAS]
    found: list[Row]
    if (database := _sqlite_connection(connection)) is not None:
        with connection.wrap_database_errors:
            found = database.execute(_to_sqlite(sql), values or ()).fetchall()
        return found
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        found = cursor.fetchall()
    return found


def prepare(sql: str, values: Sequence[Any]) -> Callable[[], list[Row]]:
    """Return a function that fetches all rows. For PostgreSQL the statement is composed
    now: with a value of many megabytes that takes seconds, during which no transaction
    should be open."""
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        return partial(fetch_rows, sql, values)
    with connection.cursor() as cursor:
        return partial(fetch_rows, cursor.mogrify(sql, values), None)


def execute(sql: str, values: Sequence[Any]) -> None:
    """Run a statement without a result. Datetimes among the values are adapted."""
    connection = connections[DEFAULT_DB_ALIAS]
    values = [adapt_value(value) for value in values]
    if (database := _sqlite_connection(connection)) is not None:
        with connection.wrap_database_errors:
            database.execute(_to_sqlite(sql), values)
        return
    with connection.cursor() as cursor:
        cursor.execute(sql, values)


def execute_many(sql: str, values: Sequence[Sequence[Any]]) -> None:
    connection = connections[DEFAULT_DB_ALIAS]
    if (database := _sqlite_connection(connection)) is not None:
        with connection.wrap_database_errors:
            database.executemany(_to_sqlite(sql), values)
        return
    with connection.cursor() as cursor:
        cursor.executemany(sql, values)


def adapt_value(value: Any) -> Any:
    """A datetime as the database takes it; any other value unchanged."""
    if not isinstance(value, datetime):
        return value
    connection = connections[DEFAULT_DB_ALIAS]
    if value.tzinfo is UTC and connection.vendor == "sqlite":
        return value.replace(tzinfo=None).isoformat(" ")  # runs a dozen times a turn
    return connection.ops.adapt_datetimefield_value(value)


def _sqlite_connection(connection: Any) -> Any:
    """SQLite's own connection; None if Django's cursor is needed: for another database,
    a broken transaction, or code that logs or wraps statements."""
    if (
        connection.vendor != "sqlite"
        or connection.needs_rollback
        or connection.queries_logged
        or connection.execute_wrappers
    ):
        return None
    # Refuses to run on an event loop, like Django's cursor.
    connection.ensure_connection()
    return connection.connection


def _to_sqlite(sql: str) -> str:
    """Replace %s by SQLite's own placeholders, as Django's cursor does."""
    # Long statements contain many values; caching them would waste memory.
    return (
        _convert_placeholders(sql)
        if len(sql) < _MAX_CACHED_LENGTH
        else _convert_placeholders.__wrapped__(sql)
    )


@lru_cache(maxsize=256)
def _convert_placeholders(sql: str) -> str:
    from django.db.backends.sqlite3.base import FORMAT_QMARK_REGEX

    return str(FORMAT_QMARK_REGEX.sub("?", sql).replace("%%", "%"))
