"""Migrations one by one, from an empty database."""

from __future__ import annotations

from django.apps.registry import Apps
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader


class SingleMigrations(MigrationLoader):
    """Without the squashed migrations, which create the newest tables at once: in the
    middle of the others they would reset the tables that Django has in mind."""

    def load_disk(self) -> None:
        super().load_disk()
        self.disk_migrations = {
            key: each for key, each in self.disk_migrations.items() if not each.replaces
        }


def create_old_tables(app: str, name: str) -> Apps:
    """Remove all our tables, and create those of this migration."""
    for each in ("conversations", "tools", "llm"):
        call_command("migrate", each, "zero", verbosity=0)
    return migrate_to(app, name)


def migrate_to(app: str, name: str) -> Apps:
    executor = MigrationExecutor(connection)
    executor.loader = SingleMigrations(connection, replace_migrations=False)
    executor.migrate([(app, name)])
    return executor.loader.project_state([(app, name)]).apps
