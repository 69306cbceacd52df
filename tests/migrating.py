"""Migrations one by one, from an empty database."""

from __future__ import annotations

from django.apps.registry import Apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader


def create_old_tables(app: str, name: str) -> Apps:
    """Remove all our tables, and create those of this migration."""
    for each in ("conversations", "tools", "llm"):
        call_command("migrate", each, "zero", verbosity=0)
    return migrate_to(app, name)


def migrate_to(app: str, name: str) -> Apps:
    executor = MigrationExecutor(connection)
    # Not by the squashed migrations, which create the newest tables at once.
    executor.loader = MigrationLoader(connection, replace_migrations=False)
    executor.migrate([(app, name)])
    return executor.loader.project_state([(app, name)]).apps
