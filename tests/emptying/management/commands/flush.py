"""Empty the tables between tests, and restore the rows that migrations leave.

Django's command truncates every table and lets `post_migrate` make the permissions,
content types and tools anew: 30 ms of CPU, and over PostgreSQL several times as long.
The first call does that; each later one deletes rows, and restores the rows that the
first one left: 1 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.core.management.commands import flush
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from conversations.audit import triggers

#: Of each database: the columns and rows of every table when a test begins.
_first_rows: dict[str, dict[str, Rows]] = {}


@dataclass(frozen=True)
class Rows:
    columns: str
    rows: list[tuple[Any, ...]]

    @classmethod
    def read(cls, cursor: Any, table: str, columns: str = "*") -> Rows:
        cursor.execute(f"SELECT {columns} FROM {table}")
        names = [f'"{column[0]}"' for column in cursor.description]
        return cls(", ".join(names), sorted(cursor.fetchall(), key=repr))


class Command(flush.Command):
    def handle(self, **options: Any) -> None:
        database = options["database"]
        if database in _first_rows:
            _restore(connections[database], _first_rows[database])
            return
        triggers.remove(connections[database])  # `post_migrate` installs them again
        super().handle(**options)
        _first_rows[database] = _read_rows(connections[database])


def _read_rows(connection: BaseDatabaseWrapper) -> dict[str, Rows]:
    tables = connection.introspection.django_table_names(
        only_existing=True, include_views=False
    )
    with connection.cursor() as cursor:
        return {f'"{table}"': Rows.read(cursor, f'"{table}"') for table in tables}


def _restore(connection: BaseDatabaseWrapper, first_rows: dict[str, Rows]) -> None:
    """Constraints are checked at the end of the transaction, so order is free."""
    filled = " UNION ALL ".join(
        f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {table})" for table in first_rows
    )
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute(filled)
        changed = {table for (table,) in cursor.fetchall()}
        is_audited = any(f'"{table}"' in changed for table in triggers.TABLES)
        if is_audited:
            triggers.remove(connection)
        for table in changed | {
            table for table, first in first_rows.items() if first.rows
        }:
            _restore_table(cursor, table, first_rows[table])
        if is_audited:
            triggers.install(connection)
    ContentType.objects.clear_cache()


def _restore_table(cursor: Any, table: str, first: Rows) -> None:
    if first.rows and Rows.read(cursor, table, first.columns) == first:
        return
    cursor.execute(f"DELETE FROM {table}")
    if first.rows:
        marks = ", ".join(["%s"] * len(first.rows[0]))
        cursor.executemany(
            f"INSERT INTO {table} ({first.columns}) VALUES ({marks})", first.rows
        )
