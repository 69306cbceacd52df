"""The command `migrate` and PostgreSQL's idle timeout."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite has none"),
]


def test_the_timeout_counts_again_after_a_migration_that_fails() -> None:
    before = timeout()
    with pytest.raises(CommandError):
        call_command("migrate", "no_such_app", verbosity=0)
    assert timeout() == before != "0"


def test_the_session_goes_on_after_a_migration_that_fails() -> None:
    """It may have the lock that only one starting process has."""
    before = value_of("SELECT pg_backend_pid()")
    with pytest.raises(CommandError):
        call_command("migrate", "no_such_app", verbosity=0)
    assert value_of("SELECT pg_backend_pid()") == before


def timeout() -> str:
    return value_of("SHOW idle_in_transaction_session_timeout")


def value_of(statement: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return str(cursor.fetchone()[0])
