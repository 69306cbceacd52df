"""`AddIndexBeside`: a migration that adds an index while others write."""

from __future__ import annotations

from typing import Any

from django.db import migrations


class AddIndexBeside(migrations.AddIndex):
    """Adds an index while others write, where the database can.

    Django's own for PostgreSQL knows no other database, and needs its driver.
    """

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.vendor != "postgresql":
            super().database_forwards(app_label, schema_editor, from_state, to_state)
            return
        # An earlier attempt that was cut short has left an invalid index.
        schema_editor.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{self.index.name}"')
        model = to_state.apps.get_model(app_label, self.model_name)
        schema_editor.add_index(model, self.index, concurrently=True)
