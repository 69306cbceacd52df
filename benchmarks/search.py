"""Search over a million messages: time of a page of results, and recall.

A user's messages are made of words with Zipf's frequencies and of Chinese, indexed by
the server's code, and searched for one to three words of a random message, whole or
cut short. Recall compares all that a search finds with a scan of all messages.

`python -m benchmarks search` searches in SQLite, or in the database that `DATABASE_URL`
names; messages that an earlier run has written there are used again. `SEARCH_ITEMS`
sets another number of messages. On PostgreSQL the documents are written in large
batches, and the GIN index is built when they are complete.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from benchmarks.table import show
from conversations.models import Conversation, Item, Turn
from conversations.search.index import Document, index_pending, write_documents
from conversations.search.matching import Query, fold
from conversations.search.message_search import MessageSearch
from conversations.search.results import find_conversations
from conversations.search.stored_messages import text_of_row, with_stored
from llm.wire.items import message, text_of

ITEMS = int(os.environ.get("SEARCH_ITEMS", "1000000"))
TURNS = 5  # of a conversation, with two messages each
BATCH = 2000  # conversations, or documents, written at once
QUERIES = 200
VOCABULARY = 50_000  # words
SYLLABLES = [c + v for c in "bcdfghklmnprstvwz" for v in ("a", "e", "i", "o", "u", "é")]
HAN = [chr(code) for code in range(0x4E00, 0x4E00 + 2000)]


def main() -> None:
    call_command("migrate", verbosity=0)
    user, is_new = get_user_model().objects.get_or_create(username=f"search{ITEMS}")
    if is_new:
        _write_messages(user.pk, random.Random(7))
    began = time.monotonic()
    if is_new and connection.vendor == "postgresql":
        _index_at_once()
    for _ in index_pending():
        pass
    indexed = time.monotonic() - began
    queries = _queries(random.Random(8))
    took = [_timed(user, query) for query in queries]
    lost, extra = _compare(user.pk, queries)
    show(
        f"Search over {ITEMS:,} messages, {connection.vendor}, {QUERIES} queries",
        ["a page of results", "median, ms", "95 %", "most"],
        [
            ["by the clock", *_spread([wall for wall, _, _ in took])],
            ["CPU of this process", *_spread([cpu for _, cpu, _ in took])],
            ["CPU of PostgreSQL's", *_spread([cpu for _, _, cpu in took])],
        ],
    )
    print(f"Conversations lost: {lost}, found in error: {extra}.")
    if is_new:
        print(f"Indexing took {1000 * indexed / ITEMS:.2f} ms a message.")


def _index_at_once() -> None:
    with _without_index("conversations_search_entries"):
        rows = with_stored(Item.objects.filter(type="message")).order_by("pk")
        last = 0
        while batch := list(rows.filter(pk__gt=last)[:BATCH]):
            last = batch[-1].pk
            with transaction.atomic():
                write_documents(
                    [Document.of(row.pk, row.turn, text_of_row(row)) for row in batch]
                )
    Turn.objects.update(is_indexed=True)
    Conversation.objects.update(indexed_title=F("title"))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


@contextmanager
def _without_index(name: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_indexdef(%s::regclass)", [name])
        ((definition,),) = cursor.fetchall()
        cursor.execute(f"DROP INDEX {name}")
        yield
        cursor.execute("SET maintenance_work_mem = '512MB'")
        cursor.execute(definition)


def _database_cpu() -> float:
    """Seconds of CPU of the PostgreSQL process that serves this connection; 0 where it
    runs on another machine, or where there is none."""
    if connection.vendor != "postgresql":
        return 0.0
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        ((pid,),) = cursor.fetchall()
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:
        return 0.0


def _write_messages(owner: int, chance: random.Random) -> None:
    now = timezone.now()
    texts = _texts(chance)
    left = ITEMS // (2 * TURNS)
    while left > 0:
        rows = [
            Conversation(owner_id=owner, title=next(texts)[:60], updated_at=now)
            for _ in range(min(BATCH, left))
        ]
        left -= len(rows)
        Conversation.objects.bulk_create(rows)
        turns = [
            Turn(conversation=row, status=Turn.Status.COMPLETED)
            for row in rows
            for _ in range(TURNS)
        ]
        Turn.objects.bulk_create(turns)
        Item.objects.bulk_create(
            Item.of(turn, place, message(role, next(texts)), origin=origin)
            for turn in turns
            for place, (role, origin) in enumerate(
                [("user", Item.Origin.INPUT), ("assistant", Item.Origin.OUTPUT)]
            )
        )


def _texts(chance: random.Random) -> Iterator[str]:
    words = [
        "".join(chance.choices(SYLLABLES, k=chance.choice((1, 2, 2, 3, 3, 4))))
        for _ in range(VOCABULARY)
    ]
    weights = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))
    while True:
        if chance.random() < 0.1:
            yield "".join(chance.choices(HAN, k=chance.randint(10, 200)))
        else:
            sentence = chance.choices(
                words, cum_weights=weights, k=chance.randint(10, 90)
            )
            yield " ".join(sentence).capitalize() + "."


def _queries(chance: random.Random) -> list[str]:
    first, last = (
        Item.objects.order_by(order).values_list("pk", flat=True).first() or 0
        for order in ("pk", "-pk")
    )
    queries: list[str] = []
    while len(queries) < QUERIES:
        at = chance.randint(first, last)
        if row := Item.objects.filter(pk__gte=at).order_by("pk").first():
            queries.append(_query(text_of(row.payload), chance))
    return queries


def _query(text: str, chance: random.Random) -> str:
    if " " not in text:
        length = chance.randint(1, 5)
        at = chance.randrange(max(1, len(text) - length))
        return text[at : at + length]
    words = chance.sample(text.rstrip(".").split(), k=chance.randint(1, 3))
    if chance.random() < 0.5:
        words[-1] = words[-1][: max(3, len(words[-1]) - 2)]
    return " ".join(words)


def _timed(user: object, query: str) -> tuple[float, float, float]:
    """Milliseconds by the clock, of this process's CPU and of PostgreSQL's."""
    began = _times()
    find_conversations(user, query)
    wall, own, database = (
        1000 * (after - before) for before, after in zip(began, _times(), strict=True)
    )
    return wall, own, database


def _times() -> tuple[float, float, float]:
    database = _database_cpu()
    return time.perf_counter(), time.process_time(), database


def _spread(times: list[float]) -> list[float]:
    in_order = sorted(times)
    return [
        statistics.median(in_order),
        in_order[len(in_order) * 95 // 100],
        in_order[-1],
    ]


def _compare(user_id: int, queries: list[str]) -> tuple[int, int]:
    """Conversations that searches lose, and those that they find in error."""
    wanted = [Query.of(query) for query in queries]
    scanned: list[set[str]] = [set() for _ in wanted]
    rows = Item.objects.filter(turn__conversation__owner=user_id)
    fields = ("turn__conversation_id", "turn__conversation__title", "payload")
    for pk, title, payload in rows.values_list(*fields).iterator(chunk_size=5000):
        folded = fold(f"{title}\n{text_of(payload)}")
        for query, found in zip(wanted, scanned, strict=True):
            if all(word in folded for word in query.words) and query.matches(folded):
                found.add(pk)
    lost = extra = 0
    for query, there in zip(wanted, scanned, strict=True):
        found = {match.conversation for match in MessageSearch.of(user_id, query)}
        lost, extra = lost + len(there - found), extra + len(found - there)
    return lost, extra
