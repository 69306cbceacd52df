"""Create and drop the table of the full-text search index."""

from __future__ import annotations

from typing import Any

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
