"""Create and drop the tables and columns of the full-text search index."""

from __future__ import annotations

from typing import Any

_DOCUMENTS = "conversations_searchdocument"
_ENTRIES = (
    f"ALTER TABLE {_DOCUMENTS} ADD COLUMN entries tsvector",
    # Statistics of lexemes serve no plan, and collecting them reads all documents.
    f"ALTER TABLE {_DOCUMENTS} ALTER COLUMN entries SET STATISTICS 0",
    # Without fastupdate: a search would read all of its list of pending entries.
    f"CREATE INDEX conversations_search_entries ON {_DOCUMENTS}"
    " USING gin (entries) WITH (fastupdate = off) WHERE entries IS NOT NULL",
    f"CREATE INDEX conversations_search_unconverted ON {_DOCUMENTS}"
    " (owner_id, item_id) WHERE entries IS NULL",
)
_FTS5 = """
CREATE VIRTUAL TABLE conversations_search USING fts5(
  tokens, tokenize = "ascii tokenchars '_'", detail = none, prefix = '1 2 3 4'
)
"""
_TRIGGER = """
CREATE TRIGGER conversations_search_delete AFTER DELETE ON conversations_searchdocument
BEGIN DELETE FROM conversations_search WHERE rowid = OLD.item_id; END
"""


def create_index(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(
            "ALTER TABLE conversations_searchdocument ADD COLUMN tokens tsvector"
        )
        editor.execute(
            "CREATE INDEX conversations_search_tokens"
            " ON conversations_searchdocument USING gin (tokens)"
        )
    else:
        editor.execute(_FTS5)
        editor.execute(_TRIGGER)


def drop_index(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute("ALTER TABLE conversations_searchdocument DROP COLUMN tokens")
    else:
        editor.execute("DROP TRIGGER conversations_search_delete")
        editor.execute("DROP TABLE conversations_search")


def create_entries(apps: Any, editor: Any) -> None:
    """What 0025 adds, for a table without rows: its indexes need not be built beside."""
    if editor.connection.vendor == "postgresql":
        for statement in _ENTRIES:
            editor.execute(statement)


def drop_entries(apps: Any, editor: Any) -> None:
    if editor.connection.vendor == "postgresql":
        editor.execute(f"ALTER TABLE {_DOCUMENTS} DROP COLUMN entries")
