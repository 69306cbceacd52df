"""Migrations that add an index while others write, where the database can.

Django's own for PostgreSQL know no other database and need its driver, and none of them
adds a unique index.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations


class AddIndexBeside(migrations.AddIndex):
    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        is_postgresql = schema_editor.connection.vendor == "postgresql"
        how = "CONCURRENTLY " if is_postgresql else ""
        # An earlier attempt that was cut short may have left an index.
        schema_editor.execute(f'DROP INDEX {how}IF EXISTS "{self.index.name}"')
        if not is_postgresql:
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        model = to_state.apps.get_model(app_label, self.model_name)
        schema_editor.add_index(model, self.index, concurrently=True)


class AddUniqueBeside(migrations.AddConstraint):
    """Adds a unique constraint that is an index: one with a condition."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        is_postgresql = schema_editor.connection.vendor == "postgresql"
        how = "CONCURRENTLY " if is_postgresql else ""
        # An earlier attempt that was cut short has left an invalid index.
        schema_editor.execute(f'DROP INDEX {how}IF EXISTS "{self.constraint.name}"')
        model = to_state.apps.get_model(app_label, self.model_name)
        sql = str(self.constraint.create_sql(model, schema_editor))
        begin = "CREATE UNIQUE INDEX "
        assert sql.startswith(begin), sql
        schema_editor.execute(begin + how + sql.removeprefix(begin), params=None)
