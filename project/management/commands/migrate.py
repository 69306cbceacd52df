"""Command `migrate`: Django's, without PostgreSQL's idle timeout, and never over a
restore that was interrupted."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from project.backups.interrupted_restore import refuse_unfinished


class Command(migrate.Command):
    """Django's `migrate` without PostgreSQL's idle timeout, and not over what an
    interrupted restore has left."""

    def handle(self, *args: Any, **options: Any) -> None:
        if not options["check_unapplied"]:
            refuse_unfinished()
        connection = connections[options["database"]]
        if connection.vendor != "postgresql":
            super().handle(*args, **options)
            return
        # Or PostgreSQL ends the connection while a migration computes for long between
        # two statements. `project.environment.scaled` sets the timeout.
        _execute(connection, "SET idle_in_transaction_session_timeout = 0")
        try:
            super().handle(*args, **options)
        finally:
            _restore_timeout(connection)


def _restore_timeout(connection: BaseDatabaseWrapper) -> None:
    """The connection is not closed where it works: its session may have the lock of
    `project.startup.preparation`."""
    try:
        _execute(connection, "RESET idle_in_transaction_session_timeout")
    except DatabaseError:  # of a transaction that has failed, say
        connection.close()  # the next one has the timeout again


def _execute(connection: BaseDatabaseWrapper, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
