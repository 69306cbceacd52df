from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from conversations.models import Conversation, Turn
from llm.models import ModelCall
from tests.conversations.scene import a_user
from tests.migrating import SingleMigrations, create_old_tables, migrate_to
from tools.models import DeclaredTool

pytestmark = pytest.mark.slow


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
def test_tokens_of_before_declare_what_they_did_and_newer_ones_do_not():
    try:
        before = create_old_tables("conversations", "0020_turn_provider_response")
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
        call_command("migrate", verbosity=0)


@pytest.mark.django_db(transaction=True)
def test_the_squashed_migrations_create_the_same_tables_as_the_single_ones():
    try:
        squashed = tables()
        create_old_tables("conversations", "0066_postgresql_alone")
        single = SingleMigrations(connection, replace_migrations=False).graph
        for app, name in single.leaf_nodes():
            migrate_to(app, name)
        assert tables() == squashed
    finally:
        call_command("migrate", verbosity=0)


def tables() -> dict[str, Any]:
    """The columns, indexes and constraints of each table."""
    with connection.cursor() as cursor:
        inspect = connection.introspection
        return {
            table.name: (
                {
                    (column.name, column.type_code, column.null_ok, column.default)
                    for column in inspect.get_table_description(cursor, table.name)
                },
                shapes(inspect.get_constraints(cursor, table.name)),
            )
            for table in inspect.get_table_list(cursor)
        }


def shapes(constraints: dict[str, Any]) -> list[str]:
    """Without the names, which Django derives from those of columns."""
    return sorted(repr(sorted(found.items())) for found in constraints.values())


@pytest.mark.nightly
@pytest.mark.django_db(transaction=True)
def test_a_database_of_before_gets_a_row_for_each_kind_of_declared_tool():
    leaves = MigrationExecutor(connection).loader.graph.leaf_nodes()
    try:
        create_old_tables("tools", "0008_runs_unasked")
        assert "tools_declaredtool" not in connection.introspection.table_names()
    finally:
        call_command("migrate", verbosity=0)
    rows = dict(DeclaredTool.objects.values_list("kind", "allowed_for"))
    assert (rows["web_search"], rows["code_interpreter"]) == ("everybody", "nobody")
    assert MigrationExecutor(connection).loader.graph.leaf_nodes() == leaves


@pytest.mark.django_db
def test_model_calls_of_before_are_named_after_the_author_of_their_turn():
    ada, bob = a_user("ada"), a_user("bob")
    chat = Conversation.objects.create(owner=ada)
    for author in ({}, {"author": bob}, {"author_name": "eve, who is gone"}):
        turn = Turn.objects.create(conversation=chat, **author)
        ModelCall.objects.create(turn_id=turn.pk, status="completed")
    ModelCall.objects.create(status="completed")  # of a stateless response
    migration = import_module("conversations.migrations.0034_model_call_users")
    migration.name_users(None, SimpleNamespace(connection=connection))
    found = ModelCall.objects.order_by("pk").values_list("user_id", flat=True)
    assert list(found) == [ada.pk, bob.pk, None, None]
