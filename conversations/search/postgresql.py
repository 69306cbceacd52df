"""PostgreSQL's full-text index: lexemes of a document, and queries for them.

A document's column `entries` has a lexeme `<owner>/<bucket>/<token>` for each token; a
bucket is a range of item ids. So the entries of one owner and bucket stand side by side
in the GIN index, and a search for the beginning of a word reads those of one bucket. It
begins with the newest bucket and ends with the first full page, however many messages
have the words: GIN itself returns no order, and would read all matches for each page.

Documents of earlier versions have `tokens` without owner and bucket instead. A search
finds them too, until `conversations.search.index` has converted them.

Source: https://www.postgresql.org/docs/15/gin-implementation.html
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django.db import connection, transaction

from conversations.search.stored_messages import OVERFULL_TOKEN, OWNER_TOKEN

BUCKET = 16_384  # item ids
FIRST_PORTION, LAST_PORTION = 600, 5000  # matches per query; it grows
MOST_BUCKETS = 64  # per query; the first looks at one
GROWTH = 4  # of both, from one query to the next
MOST_TOKENS = 900_000  # bytes; a tsvector holds 1 MB
_MAX_ID = 2**63 - 1  # of an item

IndexRow = tuple[int, str, str, bool]  # as the fields of `Match`


def lexemes_of(owner: int, item: int, tokens: Collection[str] | None) -> list[str]:
    """The lexemes of a document; `tokens` is None if they were too many before.

    A document with more tokens than a tsvector holds matches every query of its owner,
    and the search checks its text.
    """
    prefix = _prefix(owner, item // BUCKET)
    if tokens is None or _size(prefix, tokens) > MOST_TOKENS:
        return [_overfull(owner)]
    return [prefix + token for token in tokens]


def _size(prefix: str, tokens: Collection[str]) -> int:
    return sum(len(prefix) + len(token.encode()) + 2 for token in tokens)


def search_documents(
    user_id: int, groups: Sequence[Sequence[str]]
) -> Iterator[IndexRow]:
    """Documents with all terms of at least one group, newest first."""
    # Unconverted rows first: a row that is converted meanwhile is found a second time.
    found = heapq.merge(
        _search_unconverted(user_id, groups),
        _search_overfull(user_id),
        _search_buckets(user_id, groups),
        key=lambda row: row[0],
        reverse=True,
    )
    before = None
    for row in found:
        if row[0] != before:
            yield row
        before = row[0]


def _search_buckets(
    user_id: int, groups: Sequence[Sequence[str]]
) -> Iterator[IndexRow]:
    below, number, portion = _MAX_ID, 1, FIRST_PORTION
    while buckets := _buckets(user_id, below, number):
        queries = [_query(groups, _prefix(user_id, bucket)) for bucket in buckets]
        rows = _fetch(_ENTRIES, [queries, below, portion, user_id])
        yield from _visible(rows)
        if len(rows) == portion:  # there may be more of them in the same buckets
            below, number = rows[-1][0], max(number // GROWTH, 1)
        else:
            below, number = buckets[-1] * BUCKET, min(number * GROWTH, MOST_BUCKETS)
        portion = min(portion * GROWTH, LAST_PORTION)


def _search_overfull(user_id: int) -> Iterator[IndexRow]:
    below = _MAX_ID
    query = _lexeme(_overfull(user_id))
    while rows := _fetch(_ENTRIES, [[query], below, LAST_PORTION, user_id]):
        yield from ((*row[:3], False) for row in _visible(rows))
        below = rows[-1][0]


def _search_unconverted(
    user_id: int, groups: Sequence[Sequence[str]]
) -> Iterator[IndexRow]:
    if not _fetch(_HAS_UNCONVERTED, [user_id]):
        return
    owner, overfull = _lexeme(OWNER_TOKEN.format(user_id)), _lexeme(OVERFULL_TOKEN)
    query = f"{owner} & ({_query(groups)} | {overfull})"
    below = _MAX_ID
    while rows := _fetch(_TOKENS, [overfull, query, below, LAST_PORTION, user_id]):
        yield from _visible(rows)
        below = rows[-1][0]


#: Ids of the next buckets of an owner that have documents, newest first.
_BUCKETS = (
    "WITH RECURSIVE buckets(number) AS ("
    "(SELECT item_id / %s FROM conversations_searchdocument"
    " WHERE owner_id = %s AND item_id < %s ORDER BY item_id DESC LIMIT 1)"
    " UNION ALL SELECT (SELECT item_id / %s FROM conversations_searchdocument"
    " WHERE owner_id = %s AND item_id < number * %s ORDER BY item_id DESC LIMIT 1)"
    " FROM buckets WHERE number IS NOT NULL)"
    " SELECT number FROM buckets WHERE number IS NOT NULL LIMIT %s"
)
#: Conversations are looked up one by one (`LIMIT 1` keeps PostgreSQL from joining): it
#: expects thousands of matches where there are few, and would read all conversations.
_VISIBLE = (
    " SELECT newest.*, c.id IS NOT NULL FROM newest LEFT JOIN LATERAL ("
    "SELECT id FROM conversations_conversation WHERE id = newest.conversation_id"
    " AND owner_id = %s AND deleted_at IS NULL LIMIT 1) AS c ON true"
    " ORDER BY newest.item_id DESC"
)
#: `OFFSET 0` makes PostgreSQL search once per query. It would rather read all documents
#: once and compare each with all queries, because it takes a comparison for cheap.
_ENTRIES = (
    "WITH newest AS MATERIALIZED ("
    "SELECT item_id, turn_id, conversation_id, true"
    " FROM unnest(%s::text[]) AS query, LATERAL ("
    "SELECT item_id, turn_id, conversation_id FROM conversations_searchdocument"
    " WHERE entries @@ query::tsquery OFFSET 0) AS d"
    f" WHERE item_id < %s ORDER BY item_id DESC LIMIT %s){_VISIBLE}"
)
_TOKENS = (
    "WITH d AS MATERIALIZED ("
    "SELECT item_id, turn_id, conversation_id, NOT tokens @@ %s::tsquery AS is_certain"
    " FROM conversations_searchdocument WHERE tokens @@ %s::tsquery AND item_id < %s),"
    " newest AS MATERIALIZED (SELECT * FROM d ORDER BY item_id DESC LIMIT %s)"
    f"{_VISIBLE}"
)
_HAS_UNCONVERTED = (
    "SELECT 1 FROM conversations_searchdocument"
    " WHERE owner_id = %s AND entries IS NULL LIMIT 1"
)


def _buckets(user_id: int, below: int, number: int) -> list[int]:
    params = [BUCKET, user_id, below, BUCKET, user_id, BUCKET, number]
    return [row[0] for row in _fetch(_BUCKETS, params)]


@transaction.atomic
def _fetch(query: str, params: Sequence[Any]) -> list[Any]:
    with connection.cursor() as cursor:
        # The planner expects many more matches than there are, and compiling the query
        # would take longer than running it.
        cursor.execute("SET LOCAL jit = off")
        cursor.execute(query, params)
        rows: list[Any] = cursor.fetchall()
        return rows


def _visible(rows: Sequence[Any]) -> Iterator[IndexRow]:
    """Rows whose conversation is the user's and not deleted."""
    return (row[:4] for row in rows if row[4])


def _query(groups: Sequence[Sequence[str]], prefix: str = "") -> str:
    """A tsquery for all terms of at least one group."""
    each = (
        " & ".join(f"{_lexeme(prefix + term)}:*" for term in terms) for terms in groups
    )
    return f"({' | '.join(f'({terms})' for terms in each)})"


def _prefix(owner: int, bucket: int) -> str:
    return f"{owner}/{bucket}/"


def _overfull(owner: int) -> str:
    return f"{owner}/{OVERFULL_TOKEN}"


def _lexeme(token: str) -> str:
    return "'" + token.replace("\\", "\\\\").replace("'", "''") + "'"
