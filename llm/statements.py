"""SQL to the default database and its rows back, for what every message asks.

Django's cursor looks at each statement a dozen times on its way to SQLite, which costs
ten times what SQLite needs to answer it. Where nobody listens to statements, they go to
SQLite itself, by the same connection and inside the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

Row = tuple[Any, ...]
_LONG = 4_000  # characters


def rows(sql: str, values: Sequence[Any] | None) -> list[Row]:
    """All rows. Values and columns are the database's own; but see `adapted`."""
    connection = connections[DEFAULT_DB_ALIAS]
    found: list[Row]
    if (database := _direct(connection)) is not None:
        with connection.wrap_database_errors:
            found = database.execute(_of_sqlite(sql), values or ()).fetchall()
        return found
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        found = cursor.fetchall()
    return found


def ready(sql: str, values: Sequence[Any]) -> Callable[[], list[Row]]:
    """Asks for all rows once it is called. For PostgreSQL the statement is put together
    here and now: with a value of many megabytes that takes seconds, for which no
    transaction should stand still."""
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":
        return partial(rows, sql, values)
    with connection.cursor() as cursor:
        return partial(rows, cursor.mogrify(sql, values), None)


def execute(sql: str, values: Sequence[Any]) -> None:
    """A statement that tells nothing. Moments among the values are adapted."""
    connection = connections[DEFAULT_DB_ALIAS]
    values = [adapted(value) for value in values]
    if (database := _direct(connection)) is not None:
        with connection.wrap_database_errors:
            database.execute(_of_sqlite(sql), values)
        return
    with connection.cursor() as cursor:
        cursor.execute(sql, values)


def execute_many(sql: str, values: Sequence[Sequence[Any]]) -> None:
    connection = connections[DEFAULT_DB_ALIAS]
    if (database := _direct(connection)) is not None:
        with connection.wrap_database_errors:
            database.executemany(_of_sqlite(sql), values)
        return
    with connection.cursor() as cursor:
        cursor.executemany(sql, values)


def adapted(value: Any) -> Any:
    """A moment as the database takes it; any other value as it is."""
    if not isinstance(value, datetime):
        return value
    connection = connections[DEFAULT_DB_ALIAS]
    if value.tzinfo is UTC and connection.vendor == "sqlite":
        return value.replace(tzinfo=None).isoformat(" ")  # a dozen times a turn
    return connection.ops.adapt_datetimefield_value(value)


def _direct(connection: Any) -> Any:
    """SQLite's own connection; None where Django's cursor has something to do: another
    database, a transaction that is broken, somebody who counts or wraps statements."""
    if (
        connection.vendor != "sqlite"
        or connection.needs_rollback
        or connection.queries_logged
        or connection.execute_wrappers
    ):
        return None
    connection.ensure_connection()  # not on an event loop, as Django's cursor
    return connection.connection


def _of_sqlite(sql: str) -> str:
    """With SQLite's own places for values, as Django's cursor makes them."""
    # Those that grow with what is written are not kept.
    return _kept(sql) if len(sql) < _LONG else _kept.__wrapped__(sql)


@lru_cache(maxsize=256)
def _kept(sql: str) -> str:
    from django.db.backends.sqlite3.base import FORMAT_QMARK_REGEX

    return str(FORMAT_QMARK_REGEX.sub("?", sql).replace("%%", "%"))
