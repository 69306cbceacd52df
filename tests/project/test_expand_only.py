"""Migrations only add, so that the previous version works beside the new one while
processes are replaced one after another (docs/operations.md, "Upgrade")."""

from __future__ import annotations

import pytest
from django.db import models
from django.db.migrations import operations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

FOLDERS = ("conversations", "llm", "tools", "project")
#: The last migration of each app that is not looked at.
BEFORE = {
    "audit": "0001_initial",
    "accounts": "0003_scim_resource",
    "llm": "0030_usage_by_key",
    "tools": "0020_users_sign_in",
    "conversations": "0071_ledger_charged",
}
#: "app.name" of a migration that is allowed to do more, with the reason.
ALLOWED: dict[str, str] = {}
_TAKES_AWAY = (
    operations.RemoveField,
    operations.RenameField,
    operations.DeleteModel,
    operations.RenameModel,
    operations.AlterModelTable,
)


def find_fault(operation: Operation) -> str:
    """What the previous version would stumble over, or ""."""
    if isinstance(operation, operations.SeparateDatabaseAndState):
        return next(filter(None, map(find_fault, operation.database_operations)), "")
    if isinstance(operation, _TAKES_AWAY):
        return f"{type(operation).__name__} takes away what it uses"
    if isinstance(operation, operations.AddField | operations.AlterField):
        field = operation.field
        is_filled = field.null or field.has_db_default() or field.many_to_many
        return "" if is_filled else f"it inserts no value of {operation.name}"
    return ""


def test_migrations_leave_what_the_previous_version_uses():
    disk = MigrationLoader(None, ignore_no_migrations=True).disk_migrations
    ours = {
        pair: each
        for pair, each in disk.items()
        if each.__module__.partition(".")[0] in FOLDERS
    }
    assert {app for app, _ in ours} == BEFORE.keys()
    faults = {
        f"{app}.{name}": fault
        for (app, name), migration in ours.items()
        if name > BEFORE[app] and f"{app}.{name}" not in ALLOWED
        for fault in map(find_fault, migration.operations)
        if fault
    }
    assert faults == {}


@pytest.mark.parametrize(
    ("operation", "is_fault"),
    [
        (operations.RemoveField("turn", "a"), True),
        (operations.RenameField("turn", "a", "b"), True),
        (operations.DeleteModel("turn"), True),
        (operations.AddField("turn", "a", models.IntegerField(default=1)), True),
        (operations.AlterField("turn", "a", models.IntegerField()), True),
        (operations.AddField("turn", "a", models.IntegerField(null=True)), False),
        (operations.AddField("turn", "a", models.IntegerField(db_default=1)), False),
        (operations.SeparateDatabaseAndState([operations.DeleteModel("a")]), True),
        (operations.SeparateDatabaseAndState([], [operations.DeleteModel("a")]), False),
        (operations.CreateModel("turn", []), False),
    ],
)
def test_what_the_previous_version_uses_is_known(operation: Operation, is_fault: bool):
    assert bool(find_fault(operation)) is is_fault
