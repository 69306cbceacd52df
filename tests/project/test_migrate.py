"""The command `migrate` and PostgreSQL's idle timeout."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'postgresql'", reason="SQLite has none"),
]


def test_the_timeout_counts_again_after_a_migration_that_fails():
    before = timeout()
    with pytest.raises(CommandError):
        call_command("migrate", "no_such_app", verbosity=0)
    assert timeout() == before != "0"


def timeout() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        return str(cursor.fetchone()[0])
