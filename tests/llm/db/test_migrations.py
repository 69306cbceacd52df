from __future__ import annotations

from uuid import uuid4

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from tests.migrating import create_old_tables, migrate_to


@pytest.mark.slow
@pytest.mark.nightly
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


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_the_index_of_writes_is_built_while_others_write():
    try:
        before = create_old_tables("llm", "0033_model_call_write_id")
        calls = before.get_model("llm", "ModelCall").objects
        calls.create()
        with connection.cursor() as cursor:  # as an attempt that was cut short
            cursor.execute("CREATE INDEX llm_call_write_once ON llm_modelcall (id)")
        with CaptureQueriesContext(connection) as found:
            migrate_to("llm", "0034_model_call_write_once")
        if connection.vendor == "postgresql":
            [sql] = [q["sql"] for q in found if "UNIQUE INDEX" in q["sql"]]
            assert sql.startswith("CREATE UNIQUE INDEX CONCURRENTLY")
        written = uuid4()
        calls.create(write_id=written)
        with pytest.raises(IntegrityError):
            calls.create(write_id=written)
    finally:
        call_command("migrate", verbosity=0)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_an_index_that_an_earlier_attempt_has_made_is_made_anew():
    try:
        create_old_tables("llm", "0038_calls_of_replays")
        with connection.cursor() as cursor:
            cursor.execute("CREATE INDEX llm_call_of_replay ON llm_modelcall (id)")
        migrate_to("llm", "0039_calls_of_replays_by_turn")
        with connection.cursor() as cursor:
            found = connection.introspection.get_constraints(cursor, "llm_modelcall")
        assert found["llm_call_of_replay"]["columns"] == ["replayed_turn_id"]
    finally:
        call_command("migrate", verbosity=0)
