"""Queries of the full-text index: of SQLite here, else of `postgresql`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db import connection

from conversations.search.postgresql import IndexRow, search_documents
from conversations.search.stored_messages import OWNER_TOKEN

CHUNK = 200  # matches read at once


def search_index(user_id: int, groups: Sequence[Sequence[str]]) -> Iterator[IndexRow]:
    """Documents with all terms of at least one group, newest first."""
    if connection.vendor == "postgresql":
        return search_documents(user_id, groups)
    return _search_sqlite(user_id, groups)


def _search_sqlite(user_id: int, groups: Sequence[Sequence[str]]) -> Iterator[IndexRow]:
    owner = _quote(OWNER_TOKEN.format(user_id))
    condition = " OR ".join(
        f"({' AND '.join(f'{_quote(term)} *' for term in terms)})" for terms in groups
    )
    with connection.cursor() as cursor:
        cursor.execute(
            # CROSS JOIN makes SQLite read FTS5 first, which yields rows by rowid.
            "SELECT d.item_id, d.turn_id, d.conversation_id, 1"
            " FROM conversations_search CROSS JOIN conversations_searchdocument d"
            " ON d.item_id = conversations_search.rowid"
            " CROSS JOIN conversations_conversation c ON c.id = d.conversation_id"
            " WHERE conversations_search MATCH %s"
            " AND c.owner_id = %s AND c.deleted_at IS NULL"
            " ORDER BY conversations_search.rowid DESC",
            [f"{owner} AND ({condition})", user_id],
        )
        while rows := cursor.fetchmany(CHUNK):
            yield from rows


def _quote(token: str) -> str:
    return '"' + token.replace('"', '""') + '"'
