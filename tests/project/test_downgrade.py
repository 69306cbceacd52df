"""Steps back of the tables, as docs/operations.md describes them: what the version of
before has too stays as it is, and coming back creates the rest again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.apps import apps
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connection
from django.db.migrations.loader import MigrationLoader

from conversations.audit.record import record_event
from conversations.models import AccessToken, Conversation
from llm.models import ApiKey, LanguageModel, ModelCall, ModelPool, Provider
from project.accounts.models import IdentityProvider, ScimResource
from tests.conversations.scene import a_finished_turn, a_user
from tools.models import McpServer

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

Node = tuple[str, str]
#: Columns and rows by the name of the table.
Tables = dict[str, tuple[list[str], list[tuple[object, ...]]]]
APPS = ["accounts", "audit", "conversations", "llm", "tools"]
KEY = "sk-test-planted-0123456789"


def find_step_back(app: str) -> Node | None:
    """The migration before the newest; None if there is one migration only."""
    loader = MigrationLoader(connection)
    [leaf] = loader.graph.leaf_nodes(app)
    before = [
        node for node in loader.get_migration(*leaf).dependencies if node[0] == app
    ]
    return before[0] if before else None


def find_first(app: str) -> Node:
    [first] = MigrationLoader(connection).graph.root_nodes(app)
    return first


def read_tables() -> Tables:
    """Those of our apps, and users with their groups."""
    models = [
        model
        for app in (*APPS, "auth")
        for model in apps.get_app_config(app).get_models(include_auto_created=True)
    ]
    existing = connection.introspection.table_names()
    found: Tables = {}
    with connection.cursor() as cursor:
        for name in {model._meta.db_table for model in models} & {*existing}:
            cursor.execute(f'SELECT * FROM "{name}"')
            columns = [each[0] for each in cursor.description]
            found[name] = (columns, cursor.fetchall())
    # The steps forth give the shipped groups their rights again.
    for name in ("auth_permission", "auth_group", "auth_group_permissions"):
        del found[name]
    return found


def select(tables: Tables, shared: Tables) -> dict[str, list[str]]:
    """The rows of `tables`, reduced to the columns that both have."""
    found = {}
    for name, (columns, rows) in tables.items():
        if name in shared:
            places = sorted(
                (column, columns.index(column))
                for column in columns
                if column in shared[name][0]
            )
            found[name] = sorted(repr([row[at] for _, at in places]) for row in rows)
    return found


def find_changes(old: Tables, new: Tables) -> dict[str, set[str]]:
    """The rows that only one has, by table."""
    one, other = select(old, new), select(new, old)
    return {name: changed for name in one if (changed := {*one[name]} ^ {*other[name]})}


def shapes(tables: Tables) -> dict[str, set[str]]:
    return {name: set(columns) for name, (columns, _) in tables.items()}


@pytest.fixture
def before() -> Iterator[Tables]:
    """Rows in each app, in tables of the newest step too."""
    user = a_user("ada")
    provider = Provider.objects.create(name="acme", kind="openai")
    ApiKey.objects.create(provider=provider, label="first", secret=KEY)
    model = LanguageModel.objects.create(provider=provider, name="acme-1")
    ModelPool.objects.create(name="pool").members.create(model=model)
    chat = Conversation.objects.create(owner=user, language_model=model)
    turn = a_finished_turn(chat)
    ModelCall.objects.create(turn_id=turn.pk, status="completed")
    AccessToken.issue(user, "program")
    server = McpServer.objects.create(name="acme", url="https://mcp.example.org")
    server.user_sign_ins.create(user=user)
    IdentityProvider.objects.create(kind="oidc", slug="acme", label="Acme")
    ScimResource.objects.create(user=user, external_id="ada@acme")
    Group.objects.create(name="people").user_set.add(user)
    record_event("test.act")
    yield read_tables()
    call_command("migrate", verbosity=0)


def test_every_app_has_rows(before: Tables):
    for app in APPS:
        assert any(rows for name, (_, rows) in before.items() if name.startswith(app))


@pytest.mark.parametrize("app", APPS)
def test_one_step_back_and_forth_changes_nothing_else(app: str, before: Tables):
    if not (step := find_step_back(app)):
        pytest.skip("it has one migration")
    call_command("migrate", *step, verbosity=0)
    assert MigrationLoader(connection).applied_migrations.keys() >= {step}
    earlier = read_tables()
    assert find_changes(before, earlier) == {}
    call_command("migrate", verbosity=0)
    later = read_tables()
    assert shapes(later) == shapes(before)
    assert find_changes(earlier, later) == {}


def test_all_steps_back_to_the_first_migrations_and_forth(before: Tables):
    for app in APPS:
        call_command("migrate", *find_first(app), verbosity=0)
    applied = MigrationLoader(connection).applied_migrations
    unapplied = {
        node
        for app in APPS
        for node in MigrationLoader(connection).graph.leaf_nodes(app)
        if node != find_first(app)
    }
    assert unapplied
    assert unapplied.isdisjoint(applied)
    earlier = read_tables()
    assert find_changes(before, earlier) == {}
    call_command("migrate", verbosity=0)
    later = read_tables()
    assert shapes(later) == shapes(before)
    assert find_changes(earlier, later) == {}
