"""The full-text index of messages: writing it, and reading matches from it.

SQLite's FTS5 and PostgreSQL's GIN over a tsvector store the tokens that
`conversations.search` makes, so both find the same. Turns are indexed in the background
once they are over (`index_pending`). Until then `Turn.is_indexed` is false, and a
search reads their messages as they are: it finds what was said a moment ago.

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
from conversations.search import Query, fold, tokens_of
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

MAX_UNINDEXED_TEXT = 20_000_000  # characters of their messages
MAX_UNINDEXED = 2000  # turns that a search reads itself, the newest
TURNS = 50  # that are indexed in one transaction ...
CHARACTERS = 500_000  # ... unless their messages are longer than this
NEWEST = 3000  # documents of a user that PostgreSQL looks at without its index
FEWEST_MATCHES = 60  # among them, for which it does not need its index
MOST_TOKENS = 900_000  # bytes; a tsvector holds 1 MB
CHUNK = 200  # matches that are read at once
MAX_ID = 2**63 - 1  # of an item
PORTION = 5000  # matches that PostgreSQL is asked for at once

logger = logging.getLogger(__name__)
#: Tokens that no text has: whose the document is, and that it has too many tokens.
_OWNER, _OVERFULL = "\ue000{}", "\ue001"


@dataclass(frozen=True, slots=True)
class Match:
    """A message that has the words, its conversation's title included."""

    item: int
    turn: str
    conversation: str
    is_certain: bool = True  # false where only the text can tell


@dataclass(frozen=True, slots=True)
class Search:
    """The messages of one user in which words stand, newest first.

    `needs_all`: whether all words must stand in a message with the title; else one.
    """

    user_id: int
    query: Query
    unindexed: Unindexed
    needs_all: bool = True

    @classmethod
    def of(cls, user_id: int, query: Query, needs_all: bool = True) -> Search:
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
            fresh, self._indexed(), key=lambda match: match.item, reverse=True
        )

    def titles(self) -> list[str]:
        """Ids of conversations without an indexed message whose title matches."""
        if not self.query:
            return []
        return [
            pk for pk, title in self.unindexed.titles() if self._fits_text(fold(title))
        ]

    def _fits(self, row: Item) -> bool:
        text = _stored_text(row.stored)  # type: ignore[attr-defined]
        return self._fits_text(fold(f"{row.turn.conversation.title}\n{text}"))

    def _fits_text(self, folded: str) -> bool:
        if self.needs_all:
            return self.query.matches(folded)
        return self.query.score(folded) > 0

    def _indexed(self) -> Iterator[Match]:
        backend = _postgresql if connection.vendor == "postgresql" else _sqlite
        rows = backend(self.user_id, self._groups())
        while chunk := [Match(*row) for row in islice(rows, CHUNK)]:
            chunk = [each for each in chunk if each.turn not in self.unindexed.turns]
            is_certain = self.query.is_exact and all(each.is_certain for each in chunk)
            yield from chunk if is_certain else self._checked(chunk)

    def _groups(self) -> list[list[str]]:
        """Alternatives; all terms of one of them are in a document that matches."""
        terms = self.query.terms
        return [list(chain(*terms))] if self.needs_all else terms

    def _checked(self, matches: Sequence[Match]) -> list[Match]:
        """Those that have the words and not just all terms of their index."""
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
    """What of a user's conversations is not in the index, or not as it is now."""

    user_id: int
    turns: frozenset[str]
    is_complete: bool  # false while there is more than a search reads by itself

    @classmethod
    def of(cls, user_id: int) -> Unindexed:
        # No join: without statistics SQLite would begin with all the user's
        # conversations, and not with the few turns that are not indexed.
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
        """Their messages, newest first, up to so many characters."""
        if not self.turns:
            return
        rows = Item.objects.filter(turn__in=self.turns, type="message")
        newest = _with_stored(rows).order_by("-pk")
        read = 0
        for row in newest.iterator(chunk_size=20):
            if text := _stored_text(row.stored):  # type: ignore[attr-defined]
                yield row
                read += len(text)
            if read > MAX_UNINDEXED_TEXT:
                self.is_complete = False
                return

    def titles(self) -> list[tuple[str, str]]:
        """Ids and titles, newest first, of conversations of which none is indexed."""
        rows = Conversation.objects.filter(
            _HAS_NEW_TITLE, owner=self.user_id, deleted_at=None
        )
        # Sorted here: to have them in order SQLite would look at all conversations.
        found = rows.order_by().values_list("updated_at", "pk", "title")
        newest = heapq.nlargest(MAX_UNINDEXED, found.iterator())
        return [(pk, title) for _, pk, title in newest]


_HAS_NEW_TITLE = Q(indexed_title=None) | ~Q(title=F("indexed_title"))


def searchable_text(payload: ItemPayload | Any) -> str:
    """What a person or a model said; "" for anything else."""
    if not isinstance(payload, dict) or payload.get("parley:interrupted"):
        return ""
    if payload.get("role") not in ("user", "assistant"):
        return ""
    try:
        return text_of(payload)
    except (AttributeError, KeyError, TypeError):
        return ""  # a client's message may have no content that we know to read


#: A payload as it is stored. Decoding it with the rows would let one that is nested too
#: deeply fail the query, and with it the messages of everybody.
_STORED = Cast("payload", TextField())


def _stored_text(stored: str) -> str:
    """The searchable text of a payload as it is stored; "" where it is unreadable."""
    try:
        return searchable_text(json.loads(stored))
    except (ValueError, RecursionError) as exc:
        logger.warning("a message is not searched: %s", type(exc).__name__)
        return ""


def _with_stored(rows: QuerySet[Item]) -> QuerySet[Item]:
    rows = rows.select_related("turn__conversation")
    return rows.defer("payload").annotate(stored=_STORED)


# Reading

_Row = tuple[int, str, str, bool]  # as the fields of Match


def _sqlite(user_id: int, groups: Sequence[Sequence[str]]) -> Iterator[_Row]:
    owner = _quoted(_OWNER.format(user_id))
    wanted = " OR ".join(
        f"({' AND '.join(f'{_quoted(term)} *' for term in terms)})" for terms in groups
    )
    with connection.cursor() as cursor:
        cursor.execute(
            # CROSS JOIN: FTS5 comes first and gives the rows in the order of their ids.
            "SELECT d.item_id, d.turn_id, d.conversation_id, 1"
            " FROM conversations_search CROSS JOIN conversations_searchdocument d"
            " ON d.item_id = conversations_search.rowid"
            " CROSS JOIN conversations_conversation c ON c.id = d.conversation_id"
            " WHERE conversations_search MATCH %s"
            " AND c.owner_id = %s AND c.deleted_at IS NULL"
            " ORDER BY conversations_search.rowid DESC",
            [f"{owner} AND ({wanted})", user_id],
        )
        while rows := cursor.fetchmany(CHUNK):
            yield from rows


def _quoted(token: str) -> str:
    return '"' + token.replace('"', '""') + '"'


_FOUND = (
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
    """The newest documents first, without the index of words: it cannot give matches in
    order, and to sort all that have a common word takes longer than to read a page."""
    owner, overfull = _lexeme(_OWNER.format(user_id)), _lexeme(_OVERFULL)
    wanted = " | ".join(
        f"({' & '.join(f'{_lexeme(term)}:*' for term in terms)})" for terms in groups
    )
    given = [overfull, f"{owner} & ({wanted} | {overfull})", user_id, PORTION]
    rows = _fetch(_NEWEST, [user_id, NEWEST], given)
    below = MAX_ID
    if len(rows) >= FEWEST_MATCHES:
        yield from rows
        below = rows[-1][0]
    while rows := _fetch(_OLDER, [below], given):
        yield from rows
        below = rows[-1][0]
        if len(rows) < PORTION:
            return


def _fetch(documents: str, which: Sequence[Any], given: Sequence[Any]) -> list[_Row]:
    overfull, query, user_id, limit = given
    with connection.cursor() as cursor:
        cursor.execute(
            _FOUND.format(documents=documents),
            [overfull, *which, query, user_id, limit],
        )
        rows: list[_Row] = cursor.fetchall()
        return rows


def _lexeme(token: str) -> str:
    return "'" + token.replace("\\", "\\\\").replace("'", "''") + "'"


# Writing


def index_pending() -> Iterator[Mapping[str, int]]:
    """Index what is not indexed, a transaction at each step; yields how much of what.

    Synchronous. Several processes may do it at once.
    """
    while count := _mark_renamed():
        yield {"renamed conversations": count}
    while count := _index_some():
        yield {"turns": count}


@transaction.atomic
def _mark_renamed() -> int:
    """Messages of a conversation are indexed with its title: they are indexed anew."""
    indexed = SearchDocument.objects.filter(conversation=OuterRef("pk"))
    renamed = Conversation.objects.filter(_HAS_NEW_TITLE, Exists(indexed))
    pks = list(renamed.order_by().values_list("pk", flat=True)[:TURNS])
    if pks:
        Turn.objects.filter(conversation__in=pks).update(is_indexed=False)
        Conversation.objects.filter(pk__in=pks).update(indexed_title=F("title"))
    return len(pks)


def _index_some() -> int:
    """How many turns were indexed."""
    rows = Turn.objects.filter(is_indexed=False).exclude(status__in=Turn.UNFINISHED)
    newest = rows.select_related("conversation").order_by("-created_at", "-pk")
    turns, documents = _documents_of(list(newest[:TURNS]))
    with transaction.atomic():
        unchanged = {turn.pk for turn in _lock_unchanged(turns)}
        documents = [each for each in documents if each.turn in unchanged]
        SearchDocument.objects.filter(turn__in=unchanged).delete()
        _write(documents)
        Turn.objects.filter(pk__in=unchanged).update(is_indexed=True)
        _note_titles(turns, {each.turn for each in documents})
    return len(unchanged)


def _lock_unchanged(turns: Sequence[Turn]) -> list[Turn]:
    """Those that are as they were when they were read, and that no other process is
    indexing now."""
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
    """The first of the turns, as many as are not too long together, and their
    documents. Not in the transaction that writes them: others wait for that one."""
    documents: list[_Document] = []
    read = 0
    for place, turn in enumerate(turns):
        if read > CHARACTERS:
            return turns[:place], documents
        for pk, text in _texts_of(turn):
            read += len(text)
            documents.append(_document(pk, turn, text))
    return turns, documents


def _texts_of(turn: Turn) -> Iterator[tuple[int, str]]:
    """Of its messages. A turn by itself, for which the database sorts nothing, and one
    message at a time: each may be as long as an answer may be."""
    rows = Item.objects.filter(turn=turn, type="message").order_by("position")
    for pk, stored in rows.values_list("pk", _STORED).iterator(chunk_size=1):
        if text := _stored_text(stored):
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
    """A tsvector takes 1 MB. A document with more tokens is a match of every query of
    its owner's, and the search reads its text."""
    owner = _OWNER.format(document.owner)
    size = sum(len(token.encode()) + 2 for token in document.tokens)
    return [owner, _OVERFULL] if size > MOST_TOKENS else [owner, *document.tokens]


def _note_titles(turns: Sequence[Turn], indexed: set[str]) -> None:
    """The title stands in the index now, if it is the first of its conversation."""
    first = [
        turn.conversation
        for turn in turns
        if turn.pk in indexed and turn.conversation.indexed_title is None
    ]
    for row in first:
        same = Conversation.objects.filter(pk=row.pk, indexed_title=None)
        same.update(indexed_title=row.title)
