from __future__ import annotations

import pytest
from django.apps.registry import Apps
from django.db import connection
from django.db.migrations.executor import MigrationExecutor


def migrate_to(app: str, name: str) -> Apps:
    executor = MigrationExecutor(connection)
    executor.migrate([(app, name)])
    return executor.loader.project_state([(app, name)]).apps


@pytest.mark.django_db(transaction=True)
def test_rows_get_a_secret_id_each_and_older_processes_may_add_more():
    leaves = MigrationExecutor(connection).loader.graph.leaf_nodes()
    try:
        before = migrate_to("llm", "0002_degraded")
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
        MigrationExecutor(connection).migrate(leaves)
