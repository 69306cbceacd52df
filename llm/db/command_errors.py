"""Errors of the database, as management commands report them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import OperationalError, ProgrammingError


@contextmanager
def report_database_errors() -> Iterator[None]:
    """Raise CommandError, in one line, where the database is unreachable or has no
    tables yet (OperationalError on SQLite, ProgrammingError on PostgreSQL)."""
    try:
        yield
    except (OperationalError, ProgrammingError) as exc:
        reason = str(exc).partition("\n")[0].rstrip(".")
        raise CommandError(
            f"The database cannot be used: {reason}. Start the server once, which"
            " makes the tables, and check DATABASE_URL or PARLEY_DATA."
        ) from exc
