"""Full-text index of messages: indexing of turns that have ended.

SQLite's FTS5 and PostgreSQL's GIN over a tsvector store the tokens that
`conversations.search.matching` makes, so both find the same messages. A background job
indexes turns after they end (`index_pending`). Until then `Turn.is_indexed` is false
and a search reads their messages directly, so it also finds the newest ones.

Where a version makes other tokens of a text (`TOKENS_VERSION`), the job writes the
documents of earlier versions anew. A search uses them until then, and reports that it
may miss messages.

Sources: https://www.sqlite.org/fts5.html,
https://www.postgresql.org/docs/15/textsearch-features.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef

from conversations.models import Conversation, Item, SearchDocument, Turn
from conversations.search.matching import TOKENS_VERSION, tokens_of
from conversations.search.postgresql import lexemes_of
from conversations.search.stored_messages import (
    HAS_NEW_TITLE,
    OVERFULL_TOKEN,
    OWNER_TOKEN,
    STORED_TEXT,
    find_outdated,
    text_of_stored,
)

BATCH_TURNS = 50  # indexed in one transaction ...
BATCH_CHARACTERS = 500_000  # ... unless their messages are longer than this
BATCH_CONVERTED = 200  # documents of earlier versions


def index_pending() -> Iterator[Mapping[str, int]]:
    """Index all pending turns, one transaction per step; yields counts by kind.

    Synchronous. Several processes may run it at once.
    """
    while count := _mark_renamed():
        yield {"renamed conversations": count}
    while count := _index_batch():
        yield {"turns": count}
    while connection.vendor == "postgresql" and (count := _convert_batch()):
        yield {"converted documents": count}
    while count := _renew_batch():
        yield {"renewed turns": count}


@transaction.atomic
def _mark_renamed() -> int:
    """Mark the turns of renamed conversations for indexing.

    Messages are indexed together with the title of their conversation.
    """
    indexed = SearchDocument.objects.filter(conversation=OuterRef("pk"))
    renamed = Conversation.objects.filter(HAS_NEW_TITLE, Exists(indexed))
    pks = list(renamed.order_by().values_list("pk", flat=True)[:BATCH_TURNS])
    if pks:
        Turn.objects.filter(conversation__in=pks).update(is_indexed=False)
        Conversation.objects.filter(pk__in=pks).update(indexed_title=F("title"))
    return len(pks)


def _index_batch() -> int:
    """Index the newest pending turns and return their number."""
    rows = Turn.objects.not_deleted().filter(is_indexed=False)
    rows = rows.exclude(status__in=Turn.UNFINISHED)
    newest = rows.select_related("conversation").order_by("-created_at", "-pk")
    turns, documents = _documents_of(list(newest[:BATCH_TURNS]))
    with transaction.atomic():
        unchanged = _replace(turns, documents, is_indexed=False)
        Turn.objects.filter(pk__in=unchanged).update(is_indexed=True)
        indexed = {each.turn for each in documents if each.turn in unchanged}
        _save_indexed_titles(turns, indexed)
    return len(unchanged)


def _renew_batch() -> int:
    """Write the documents of turns anew whose tokens are of an earlier version, and
    return the number of these turns."""
    newest = (
        find_outdated().order_by("-owner_id", "-item_id").values_list("turn", flat=True)
    )
    rows = Turn.objects.filter(pk__in=list(newest[:BATCH_TURNS]))
    turns, documents = _documents_of(list(rows.select_related("conversation")))
    with transaction.atomic():
        return len(_replace(turns, documents, is_indexed=True))


def _replace(
    turns: Sequence[Turn], documents: Sequence[Document], *, is_indexed: bool
) -> set[str]:
    """Write the documents of those turns that did not change since they were read, and
    return the ids of these."""
    unchanged = {turn.pk for turn in _lock_unchanged(turns, is_indexed)}
    SearchDocument.objects.filter(turn__in=unchanged).delete()
    write_documents([each for each in documents if each.turn in unchanged])
    return unchanged


def _lock_unchanged(turns: Sequence[Turn], is_indexed: bool) -> list[Turn]:
    """Lock and return the turns that did not change since they were read, and that no
    other process is indexing now."""
    rows = Turn.objects.not_deleted().filter(
        pk__in=[turn.pk for turn in turns], is_indexed=is_indexed
    )
    if connection.features.has_select_for_update_skip_locked:
        rows = rows.select_for_update(skip_locked=True, of=("self",))
    versions = {turn.pk: _version_of(turn) for turn in turns}
    found = rows.select_related("conversation")
    return [turn for turn in found if _version_of(turn) == versions[turn.pk]]


def _version_of(turn: Turn) -> tuple[int, str]:
    return turn.conversation.rewritten, turn.conversation.title


@dataclass(frozen=True, slots=True)
class Document:
    """What the index stores of a message."""

    item: int
    turn: str
    conversation: str
    owner: int
    tokens: frozenset[str]

    @classmethod
    def of(cls, item: int, turn: Turn, text: str) -> Document:
        row = turn.conversation
        tokens = frozenset(tokens_of(f"{row.title}\n{text}"))
        return cls(item, turn.pk, row.pk, row.owner_id, tokens)


def _documents_of(turns: list[Turn]) -> tuple[list[Turn], list[Document]]:
    """The first turns up to `BATCH_CHARACTERS` characters, and their documents.

    This runs outside the writing transaction, which holds locks.
    """
    documents: list[Document] = []
    read = 0
    for index, turn in enumerate(turns):
        if read > BATCH_CHARACTERS:
            return turns[:index], documents
        for pk, text in _texts_of(turn):
            read += len(text)
            documents.append(Document.of(pk, turn, text))
    return turns, documents


def _texts_of(turn: Turn) -> Iterator[tuple[int, str]]:
    """Ids and texts of a turn's messages.

    One query per turn needs no sorting by the database, and one message at a time keeps
    memory low: each may have the maximum size of an answer.
    """
    if turn.conversation.is_temporary:
        return
    rows = Item.objects.filter(turn=turn, type="message").order_by("position")
    for pk, stored in rows.values_list("pk", STORED_TEXT).iterator(chunk_size=1):
        if text := text_of_stored(stored):
            yield pk, text


def write_documents(documents: Sequence[Document]) -> None:
    if connection.vendor == "postgresql":
        _write_postgresql(documents)
    else:
        _write_sqlite(documents)


def _write_sqlite(documents: Sequence[Document]) -> None:
    SearchDocument.objects.bulk_create(
        SearchDocument(
            item_id=each.item,
            turn_id=each.turn,
            conversation_id=each.conversation,
            owner_id=each.owner,
            tokens_version=TOKENS_VERSION,
        )
        for each in documents
    )
    rows = [
        (each.item, " ".join([OWNER_TOKEN.format(each.owner), *each.tokens]))
        for each in documents
    ]
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO conversations_search (rowid, tokens) VALUES (%s, %s)", rows
        )


def _write_postgresql(documents: Sequence[Document]) -> None:
    rows = [
        (
            each.item,
            each.turn,
            each.conversation,
            each.owner,
            lexemes_of(each.owner, each.item, each.tokens),
            TOKENS_VERSION,
        )
        for each in documents
    ]
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO conversations_searchdocument"
            " (item_id, turn_id, conversation_id, owner_id, entries, tokens_version)"
            " VALUES (%s, %s, %s, %s, array_to_tsvector(%s::text[]), %s)",
            rows,
        )


@transaction.atomic
def _convert_batch() -> int:
    """Convert documents of earlier versions, the newest first; returns their number."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT item_id, owner_id, tsvector_to_array(tokens)"
            " FROM conversations_searchdocument WHERE entries IS NULL"
            " ORDER BY owner_id DESC, item_id DESC LIMIT %s FOR UPDATE SKIP LOCKED",
            [BATCH_CONVERTED],
        )
        rows = cursor.fetchall()
        cursor.executemany(
            "UPDATE conversations_searchdocument"
            " SET entries = array_to_tsvector(%s::text[]), tokens = NULL"
            " WHERE item_id = %s",
            [(_converted(*row), row[0]) for row in rows],
        )
    return len(rows)


def _converted(item: int, owner: int, lexemes: Sequence[str]) -> list[str]:
    tokens = set(lexemes or ()) - {OWNER_TOKEN.format(owner)}
    return lexemes_of(owner, item, None if OVERFULL_TOKEN in tokens else tokens)


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
