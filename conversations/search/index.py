"""Full-text index of messages: writing it and searching it.

SQLite's FTS5 and PostgreSQL's GIN over a tsvector store the tokens that
`conversations.search.matching` makes, so both find the same messages. A background job
indexes turns after they end (`index_pending`). Until then `Turn.is_indexed` is false
and a search reads their messages directly, so it also finds the newest ones.

Sources: https://www.sqlite.org/fts5.html,
https://www.postgresql.org/docs/15/textsearch-features.html
"""

from __future__ import annotations

import heapq
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast

from conversations.models import Conversation, Item, SearchDocument, Turn
from conversations.search.matching import Query, fold, tokens_of
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

MAX_UNINDEXED_TEXT = 20_000_000  # characters of unindexed messages per search
MAX_UNINDEXED = 2000  # newest unindexed turns that a search reads directly
BATCH_TURNS = 50  # indexed in one transaction ...
BATCH_CHARACTERS = 500_000  # ... unless their messages are longer than this
MAX_NEWEST = 3000  # newest documents of a user that PostgreSQL scans without its index
FEWEST_MATCHES = 60  # matches among them that make a search by index unnecessary
MOST_TOKENS = 900_000  # bytes; a tsvector holds 1 MB
CHUNK = 200  # matches read at once
MAX_ID = 2**63 - 1  # of an item
PORTION = 5000  # matches per PostgreSQL query

logger = logging.getLogger(__name__)
#: Tokens that no text contains: the document's owner, and a mark for too many tokens.
_OWNER, _OVERFULL = "\ue000{}", "\ue001"


@dataclass(frozen=True, slots=True)
class Match:
    """A message that, together with its conversation's title, has the words."""

    item: int
    turn: str
    conversation: str
    is_certain: bool = True  # false if the text must be checked


@dataclass(frozen=True, slots=True)
class MessageSearch:
    """The messages of one user that match a query, newest first.

    `needs_all`: whether message and title together must have all words, or only one.
    """

    user_id: int
    query: Query
    unindexed: Unindexed
    needs_all: bool = True

    @classmethod
    def of(cls, user_id: int, query: Query, needs_all: bool = True) -> MessageSearch:
        return cls(user_id, query, Unindexed.of(user_id), needs_all)

    def __iter__(self) -> Iterator[Match]:
        if not self.query:
            return iter(())
        fresh = [
            Match(row.pk, row.turn_id, row.turn.conversation_id)
            for row in self.unindexed.items()
            if self._fits(row)
        ]
        return heapq.merge(
            fresh, self._search_index(), key=lambda match: match.item, reverse=True
        )

    def titles(self) -> list[str]:
        """Ids of conversations without an indexed message whose title matches."""
        if not self.query:
            return []
        return [
            pk for pk, title in self.unindexed.titles() if self._fits_text(fold(title))
        ]

    def _fits(self, row: Item) -> bool:
        text = _text_of_stored(row.stored)  # type: ignore[attr-defined]
        return self._fits_text(fold(f"{row.turn.conversation.title}\n{text}"))

    def _fits_text(self, folded: str) -> bool:
        if self.needs_all:
            return self.query.matches(folded)
        return self.query.score(folded) > 0

    def _search_index(self) -> Iterator[Match]:
        backend = _postgresql if connection.vendor == "postgresql" else _sqlite
        rows = backend(self.user_id, self._groups())
        while chunk := [Match(*row) for row in islice(rows, CHUNK)]:
            chunk = [each for each in chunk if each.turn not in self.unindexed.turns]
            is_certain = self.query.is_exact and all(each.is_certain for each in chunk)
            yield from chunk if is_certain else self._verify(chunk)

    def _groups(self) -> list[list[str]]:
        """Alternatives: a matching document has all terms of at least one of them."""
        terms = self.query.terms
        return [list(chain(*terms))] if self.needs_all else terms

    def _verify(self, matches: Sequence[Match]) -> list[Match]:
        """The matches whose text has the words; the index compares only terms."""
        found = _with_stored(Item.objects.all()).in_bulk(
            [match.item for match in matches]
        )
        return [
            match
            for match in matches
            if (row := found.get(match.item)) and self._fits(row)
        ]


@dataclass(slots=True)
class Unindexed:
    """Turns and titles of a user that are not in the index, or changed since."""

    user_id: int
    turns: frozenset[str]
    is_complete: bool  # false if a limit on directly read messages was reached

    @classmethod
    def of(cls, user_id: int) -> Unindexed:
        # No join: without statistics SQLite would start from all conversations of the
        # user instead of the few turns that are not indexed.
        is_theirs = Exists(
            Conversation.objects.filter(
                pk=OuterRef("conversation"), owner=user_id, deleted_at=None
            )
        )
        rows = Turn.objects.filter(is_theirs, is_indexed=False)
        newest = rows.order_by("-created_at").values_list("pk", flat=True)
        turns = list(newest[: MAX_UNINDEXED + 1])
        return cls(
            user_id, frozenset(turns[:MAX_UNINDEXED]), len(turns) <= MAX_UNINDEXED
        )

    def items(self) -> Iterator[Item]:
        """Their messages, newest first, up to MAX_UNINDEXED_TEXT characters."""
        if not self.turns:
            return
        rows = Item.objects.filter(turn__in=self.turns, type="message")
        newest = _with_stored(rows).order_by("-pk")
        read = 0
        for row in newest.iterator(chunk_size=20):
            if text := _text_of_stored(row.stored):  # type: ignore[attr-defined]
                yield row
                read += len(text)
            if read > MAX_UNINDEXED_TEXT:
                self.is_complete = False
                return

    def titles(self) -> list[tuple[str, str]]:
        """Ids and titles, newest first, of conversations whose title is not indexed."""
        rows = Conversation.objects.filter(
            _HAS_NEW_TITLE, owner=self.user_id, deleted_at=None
        )
        # Sorted here: with ORDER BY SQLite would scan all conversations.
        found = rows.order_by().values_list("updated_at", "pk", "title")
        newest = heapq.nlargest(MAX_UNINDEXED, found.iterator())
        return [(pk, title) for _, pk, title in newest]


_HAS_NEW_TITLE = Q(indexed_title=None) | ~Q(title=F("indexed_title"))


def searchable_text(payload: ItemPayload | Any) -> str:
    """The text of a message by the user or the model; "" for other items."""
    if not isinstance(payload, dict) or payload.get("parley:interrupted"):
        return ""
    if payload.get("role") not in ("user", "assistant"):
        return ""
    try:
        return text_of(payload)
    except (AttributeError, KeyError, TypeError):
        return ""  # a client's message may have content of an unknown form


#: The payload as text. If the query decoded JSON, one payload that is nested too deeply
#: would fail the query for all messages.
_STORED = Cast("payload", TextField())


def _text_of_stored(stored: str) -> str:
    """The searchable text of a payload's JSON; "" if it cannot be decoded."""
    try:
        return searchable_text(json.loads(stored))
    except (ValueError, RecursionError) as exc:
        logger.warning("a message is not searched: %s", type(exc).__name__)
        return ""


def _with_stored(rows: QuerySet[Item]) -> QuerySet[Item]:
    rows = rows.select_related("turn__conversation")
    return rows.defer("payload").annotate(stored=_STORED)


# Searching

_Row = tuple[int, str, str, bool]  # as the fields of Match


def _sqlite(user_id: int, groups: Sequence[Sequence[str]]) -> Iterator[_Row]:
    owner = _quote(_OWNER.format(user_id))
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


_SELECT_MATCHES = (
    "WITH d AS MATERIALIZED ("
    "SELECT item_id, turn_id, conversation_id, NOT tokens @@ %s::tsquery AS is_certain"
    " FROM {documents} AS documents WHERE tokens @@ %s::tsquery)"
    " SELECT d.* FROM d JOIN conversations_conversation c ON c.id = d.conversation_id"
    " WHERE c.owner_id = %s AND c.deleted_at IS NULL ORDER BY d.item_id DESC LIMIT %s"
)
_DOCUMENTS = "conversations_searchdocument"
_NEWEST = (
    f"(SELECT * FROM {_DOCUMENTS} WHERE owner_id = %s ORDER BY item_id DESC LIMIT %s)"
)
_OLDER = f"(SELECT * FROM {_DOCUMENTS} WHERE item_id < %s)"


def _postgresql(user_id: int, groups: Sequence[Sequence[str]]) -> Iterator[_Row]:
    """Matches, newest first: the newest documents without the GIN index, then the rest.

    The GIN index cannot return matches in order, and sorting all documents with a
    common word takes longer than scanning the newest ones for one page of results.
    """
    owner, overfull = _lexeme(_OWNER.format(user_id)), _lexeme(_OVERFULL)
    condition = " | ".join(
        f"({' & '.join(f'{_lexeme(term)}:*' for term in terms)})" for terms in groups
    )
    query_params = [overfull, f"{owner} & ({condition} | {overfull})", user_id, PORTION]
    rows = _fetch(_NEWEST, [user_id, MAX_NEWEST], query_params)
    below = MAX_ID
    if len(rows) >= FEWEST_MATCHES:
        yield from rows
        below = rows[-1][0]
    while rows := _fetch(_OLDER, [below], query_params):
        yield from rows
        below = rows[-1][0]
        if len(rows) < PORTION:
            return


def _fetch(
    documents: str, document_params: Sequence[Any], query_params: Sequence[Any]
) -> list[_Row]:
    overfull, query, user_id, limit = query_params
    with connection.cursor() as cursor:
        cursor.execute(
            _SELECT_MATCHES.format(documents=documents),
            [overfull, *document_params, query, user_id, limit],
        )
        rows: list[_Row] = cursor.fetchall()
        return rows


def _lexeme(token: str) -> str:
    return "'" + token.replace("\\", "\\\\").replace("'", "''") + "'"


# Indexing


def index_pending() -> Iterator[Mapping[str, int]]:
    """Index all pending turns, one transaction per step; yields counts by kind.

    Synchronous. Several processes may run it at once.
    """
    while count := _mark_renamed():
        yield {"renamed conversations": count}
    while count := _index_batch():
        yield {"turns": count}


@transaction.atomic
def _mark_renamed() -> int:
    """Mark the turns of renamed conversations for indexing.

    Messages are indexed together with the title of their conversation.
    """
    indexed = SearchDocument.objects.filter(conversation=OuterRef("pk"))
    renamed = Conversation.objects.filter(_HAS_NEW_TITLE, Exists(indexed))
    pks = list(renamed.order_by().values_list("pk", flat=True)[:BATCH_TURNS])
    if pks:
        Turn.objects.filter(conversation__in=pks).update(is_indexed=False)
        Conversation.objects.filter(pk__in=pks).update(indexed_title=F("title"))
    return len(pks)


def _index_batch() -> int:
    """Index the newest pending turns and return their number."""
    rows = Turn.objects.filter(is_indexed=False).exclude(status__in=Turn.UNFINISHED)
    newest = rows.select_related("conversation").order_by("-created_at", "-pk")
    turns, documents = _documents_of(list(newest[:BATCH_TURNS]))
    with transaction.atomic():
        unchanged = {turn.pk for turn in _lock_unchanged(turns)}
        documents = [each for each in documents if each.turn in unchanged]
        SearchDocument.objects.filter(turn__in=unchanged).delete()
        _write(documents)
        Turn.objects.filter(pk__in=unchanged).update(is_indexed=True)
        _save_indexed_titles(turns, {each.turn for each in documents})
    return len(unchanged)


def _lock_unchanged(turns: Sequence[Turn]) -> list[Turn]:
    """Lock and return the turns that did not change since they were read, and that no
    other process is indexing now."""
    rows = Turn.objects.filter(pk__in=[turn.pk for turn in turns], is_indexed=False)
    if connection.features.has_select_for_update_skip_locked:
        rows = rows.select_for_update(skip_locked=True, of=("self",))
    versions = {turn.pk: _version_of(turn) for turn in turns}
    found = rows.select_related("conversation")
    return [turn for turn in found if _version_of(turn) == versions[turn.pk]]


def _version_of(turn: Turn) -> tuple[int, str]:
    return turn.conversation.rewritten, turn.conversation.title


@dataclass(frozen=True, slots=True)
class _Document:
    item: int
    turn: str
    conversation: str
    owner: int
    tokens: frozenset[str]


def _documents_of(turns: list[Turn]) -> tuple[list[Turn], list[_Document]]:
    """The first turns up to `BATCH_CHARACTERS` characters, and their documents.

    This runs outside the writing transaction, which holds locks.
    """
    documents: list[_Document] = []
    read = 0
    for index, turn in enumerate(turns):
        if read > BATCH_CHARACTERS:
            return turns[:index], documents
        for pk, text in _texts_of(turn):
            read += len(text)
            documents.append(_document(pk, turn, text))
    return turns, documents


def _texts_of(turn: Turn) -> Iterator[tuple[int, str]]:
    """Ids and texts of a turn's messages.

    One query per turn needs no sorting by the database, and one message at a time keeps
    memory low: each may have the maximum size of an answer.
    """
    rows = Item.objects.filter(turn=turn, type="message").order_by("position")
    for pk, stored in rows.values_list("pk", _STORED).iterator(chunk_size=1):
        if text := _text_of_stored(stored):
            yield pk, text


def _document(item: int, turn: Turn, text: str) -> _Document:
    row = turn.conversation
    tokens = frozenset(tokens_of(f"{row.title}\n{text}"))
    return _Document(item, turn.pk, row.pk, row.owner_id, tokens)


def _write(documents: Sequence[_Document]) -> None:
    if connection.vendor == "postgresql":
        _write_postgresql(documents)
    else:
        _write_sqlite(documents)


def _write_sqlite(documents: Sequence[_Document]) -> None:
    SearchDocument.objects.bulk_create(
        SearchDocument(
            item_id=each.item,
            turn_id=each.turn,
            conversation_id=each.conversation,
            owner_id=each.owner,
        )
        for each in documents
    )
    rows = [
        (each.item, " ".join([_OWNER.format(each.owner), *each.tokens]))
        for each in documents
    ]
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO conversations_search (rowid, tokens) VALUES (%s, %s)", rows
        )


def _write_postgresql(documents: Sequence[_Document]) -> None:
    rows = [
        (each.item, each.turn, each.conversation, each.owner, _lexemes_of(each))
        for each in documents
    ]
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO conversations_searchdocument"
            " (item_id, turn_id, conversation_id, owner_id, tokens)"
            " VALUES (%s, %s, %s, %s, array_to_tsvector(%s::text[]))",
            rows,
        )


def _lexemes_of(document: _Document) -> list[str]:
    """The lexemes of a document.

    A tsvector holds 1 MB. A document with more tokens matches every query of its owner,
    and the search checks its text.
    """
    owner = _OWNER.format(document.owner)
    size = sum(len(token.encode()) + 2 for token in document.tokens)
    return [owner, _OVERFULL] if size > MOST_TOKENS else [owner, *document.tokens]


def _save_indexed_titles(turns: Sequence[Turn], indexed: set[str]) -> None:
    """Store the indexed title of conversations that were indexed for the first time."""
    first = [
        turn.conversation
        for turn in turns
        if turn.pk in indexed and turn.conversation.indexed_title is None
    ]
    for row in first:
        same = Conversation.objects.filter(pk=row.pk, indexed_title=None)
        same.update(indexed_title=row.title)
