"""PostgreSQL's part of a backup and of its restoring, by pg_dump and pg_restore."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.core.management.base import CommandError
from django.db import DatabaseError, connection

_SCHEMA = "public"
REPLACED = "parley_replaced"  # schema of the former tables while others are restored
PUT_BACK = (
    f"DROP SCHEMA {_SCHEMA} CASCADE",
    f"ALTER SCHEMA {REPLACED} RENAME TO {_SCHEMA}",
)


def dump_to(path: Path) -> None:
    # Events of running turns and rate limits are no use in a backup.
    arguments = ["-Fc", "--no-unlogged-table-data", "-f", str(path)]
    _run("pg_dump", *arguments, failure="The backup failed")


def restore_from(path: Path) -> None:
    """In one transaction, so that a failure leaves the database empty. Not by a script
    for psql, whose commands can start programs."""
    connection.close()
    _run(
        *("pg_restore", "--single-transaction", "--exit-on-error"),
        *("--no-owner", "--no-privileges", str(path), "-d"),
        failure="Nothing was restored",
    )


def has_tables() -> bool:
    with connection.cursor() as cursor:
        return bool(connection.introspection.table_names(cursor))


def are_set_aside() -> bool:
    """Whether `setting_tables_aside` goes on, or its process was killed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [REPLACED])
        return cursor.fetchone() is not None


def put_back() -> None:
    """Replace the current tables with those that a killed process set aside."""
    _execute(*PUT_BACK)


def count_others() -> int:
    """Connections of other processes to this database."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


@contextmanager
def setting_tables_aside() -> Iterator[None]:
    """The tables that are there come back if the body fails, and else are dropped. If
    the process is killed, they stay where they are (`are_set_aside`)."""
    _execute(
        f"ALTER SCHEMA {_SCHEMA} RENAME TO {REPLACED}",
        f"CREATE SCHEMA {_SCHEMA} AUTHORIZATION pg_database_owner",
        f"GRANT USAGE ON SCHEMA {_SCHEMA} TO PUBLIC",
    )
    try:
        yield
    except BaseException:
        put_back()
        raise
    _execute(f"DROP SCHEMA {REPLACED} CASCADE")


def _execute(*statements: str) -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("; ".join(statements))  # one transaction
    except DatabaseError as exc:
        reason = str(exc).partition("\n")[0]
        raise CommandError(
            f"The tables could not be exchanged: {reason}. The role of DATABASE_URL"
            " must own the database."
        ) from exc


def _run(*command: str, failure: str) -> None:
    arguments, environment = connection.client.settings_to_cmd_args_env(
        connection.settings_dict, list(command[1:])
    )
    try:
        done = subprocess.run(
            [command[0], *arguments[1:]],
            env={**os.environ, **(environment or {})},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    except FileNotFoundError as exc:
        raise CommandError(f"{command[0]} is not installed here.") from exc
    if done.returncode:
        reason = done.stderr.strip().partition("\n")[0]
        raise CommandError(f"{failure}: {reason}")
