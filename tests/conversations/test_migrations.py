from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests.llm.test_migrations import migrate_to
from tools.models import DeclaredTool


@pytest.mark.django_db(transaction=True)
def test_tokens_of_before_declare_what_they_did_and_newer_ones_do_not():
    leaves = MigrationExecutor(connection).loader.graph.leaf_nodes()
    try:
        before = migrate_to("conversations", "0020_turn_provider_response")
        tokens = before.get_model("conversations", "AccessToken").objects
        user = User.objects.create_user("ada").pk
        old = tokens.create(user_id=user, digest="1", prefix="p")
        after = migrate_to("conversations", "0021_access_token_declares_any_tool")
        late = tokens.create(user_id=user, digest="2", prefix="p")  # by an old process
        newer = after.get_model("conversations", "AccessToken").objects
        new = newer.create(user_id=user, digest="3", prefix="p")
        found = dict(newer.values_list("pk", "declares_any_tool"))
        assert found == {old.pk: True, late.pk: False, new.pk: False}
    finally:
        MigrationExecutor(connection).migrate(leaves)


@pytest.mark.django_db(transaction=True)
def test_a_database_of_before_gets_a_row_for_each_kind_of_declared_tool():
    executor = MigrationExecutor(connection)
    leaves = executor.loader.graph.leaf_nodes()
    try:
        migrate_to("tools", "0008_runs_unasked")
        assert "tools_declaredtool" not in connection.introspection.table_names()
    finally:
        call_command("migrate", verbosity=0)
    rows = dict(DeclaredTool.objects.values_list("kind", "allowed_for"))
    assert (rows["web_search"], rows["code_interpreter"]) == ("everybody", "nobody")
    assert MigrationExecutor(connection).loader.graph.leaf_nodes() == leaves
