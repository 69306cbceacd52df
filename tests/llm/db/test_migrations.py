from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection

from tests.migrating import create_old_tables, migrate_to


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_rows_get_a_secret_id_each_and_older_processes_may_add_more():
    try:
        before = create_old_tables("llm", "0002_degraded")
        provider = before.get_model("llm", "Provider").objects.create(
            name="Groq", kind="groq"
        )
        keys = before.get_model("llm", "ApiKey").objects
        for label in "ab":
            keys.create(provider=provider, label=label)
        migrate_to("llm", "0003_secret_rows")
        keys.create(provider=provider, label="c")  # as a process that knows no column
        with connection.cursor() as cursor:
            cursor.execute("SELECT secret_id FROM llm_apikey")
            found = {row[0] for row in cursor.fetchall()}
        assert len(found) == 3
        assert None not in found
    finally:
        call_command("migrate", verbosity=0)
