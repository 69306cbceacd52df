"""Command `migrate`: Django's, without PostgreSQL's idle timeout."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections


class Command(migrate.Command):
    """Django's `migrate` without PostgreSQL's idle timeout."""

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        # Or PostgreSQL ends the connection while a migration computes for long between
        # two statements. `project.environment.scaled` sets the timeout.
        _execute(alias, "SET idle_in_transaction_session_timeout = 0")
        super().handle(*args, **options)
        _execute(alias, "RESET idle_in_transaction_session_timeout")


def _execute(alias: str, statement: str) -> None:
    if connections[alias].vendor == "postgresql":
        with connections[alias].cursor() as cursor:
            cursor.execute(statement)
