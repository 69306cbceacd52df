from __future__ import annotations

from typing import Any

from django.db import migrations

_TABLE = "conversations_searchdocument"
#: Each takes its lock for a moment only, or builds an index beside others' work. A
#: repetition after an interruption finds what is there already.
_STATEMENTS = (
    f"ALTER TABLE {_TABLE} ADD COLUMN IF NOT EXISTS entries tsvector",
    # Statistics of lexemes serve no plan, and collecting them reads all documents.
    f"ALTER TABLE {_TABLE} ALTER COLUMN entries SET STATISTICS 0",
    "DROP INDEX CONCURRENTLY IF EXISTS conversations_search_entries",
    # Without fastupdate: a search would read all of its list of pending entries.
    f"CREATE INDEX CONCURRENTLY conversations_search_entries ON {_TABLE}"
    " USING gin (entries) WITH (fastupdate = off) WHERE entries IS NOT NULL",
    "DROP INDEX CONCURRENTLY IF EXISTS conversations_search_unconverted",
    f"CREATE INDEX CONCURRENTLY conversations_search_unconverted ON {_TABLE}"
    " (owner_id, item_id) WHERE entries IS NULL",
)


def add_entries(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        for statement in _STATEMENTS:
            editor.execute(statement)


def drop_entries(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(f"ALTER TABLE {_TABLE} DROP COLUMN entries")


class Migration(migrations.Migration):
    atomic = False  # as PostgreSQL demands of an index made beside others' work

    dependencies = [("conversations", "0024_answer_cache")]

    operations = [migrations.RunPython(add_entries, drop_entries, elidable=False)]
