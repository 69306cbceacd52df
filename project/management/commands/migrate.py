from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections


class Command(migrate.Command):
    """Django's own, with all the time that it takes."""

    def handle(self, *args: Any, **options: Any) -> None:
        _take_time(options["database"])
        super().handle(*args, **options)


def _take_time(alias: str) -> None:
    """A migration may think for long between two statements, and PostgreSQL ends our
    connections over that (`project.scaled`)."""
    if connections[alias].vendor == "postgresql":
        with connections[alias].cursor() as cursor:
            cursor.execute("SET idle_in_transaction_session_timeout = 0")
