"""Command `migrate`: Django's, without PostgreSQL's idle timeout."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections


class Command(migrate.Command):
    """Django's `migrate` without PostgreSQL's idle timeout."""

    def handle(self, *args: Any, **options: Any) -> None:
        _disable_idle_timeout(options["database"])
        super().handle(*args, **options)


def _disable_idle_timeout(alias: str) -> None:
    """Keep PostgreSQL from ending the connection while a migration computes for long
    between two statements. `project.environment.scaled` sets the timeout."""
    if connections[alias].vendor == "postgresql":
        with connections[alias].cursor() as cursor:
            cursor.execute("SET idle_in_transaction_session_timeout = 0")
