"""Search over a million messages: time of a page of results, and recall.

A user's messages are made of words with Zipf's frequencies and of Chinese, indexed as
the server does it, and searched for one to three words of a random message, whole or
cut short. Recall compares all that a search finds with a scan of all messages.

`python -m benchmarks search` asks SQLite, or the database in `DATABASE_URL`, which
should be empty. `SEARCH_ITEMS` makes the number of messages another than a million.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from collections.abc import Iterator
from itertools import accumulate

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from benchmarks.table import show
from conversations.models import Conversation, Item, Turn
from conversations.search.index import MessageSearch, index_pending
from conversations.search.matching import Query, fold
from conversations.search.results import find_conversations
from llm.wire.items import message, text_of

ITEMS = int(os.environ.get("SEARCH_ITEMS", "1000000"))
TURNS = 5  # of a conversation, with two messages each
BATCH = 2000  # conversations written at once
QUERIES = 200
VOCABULARY = 50_000  # words
SYLLABLES = [c + v for c in "bcdfghklmnprstvwz" for v in ("a", "e", "i", "o", "u", "é")]
HAN = [chr(code) for code in range(0x4E00, 0x4E00 + 2000)]


def main() -> None:
    chance = random.Random(7)
    call_command("migrate", verbosity=0)
    user = get_user_model().objects.create(username=f"search{time.time():.0f}")
    _write_messages(user.pk, chance)
    began = time.monotonic()
    for _ in index_pending():
        pass
    indexed = time.monotonic() - began
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
    queries = _queries(chance)
    took = [_timed(user, query) for query in queries]
    lost, extra = _compare(user.pk, queries)
    show(
        f"Search over {ITEMS:,} messages, {connection.vendor}, {QUERIES} queries",
        ["a page of results", "median, ms", "95 %", "most"],
        [
            ["by the clock", *_spread([wall for wall, _ in took])],
            ["CPU of this process", *_spread([cpu for _, cpu in took])],
        ],
    )
    print(f"Conversations lost: {lost}, found in error: {extra}.")
    print(f"Indexing took {1000 * indexed / ITEMS:.2f} ms a message.")


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
            said = chance.choices(words, cum_weights=weights, k=chance.randint(10, 90))
            yield " ".join(said).capitalize() + "."


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


def _timed(user: object, query: str) -> tuple[float, float]:
    began = time.perf_counter(), time.process_time()
    find_conversations(user, query)
    ended = time.perf_counter(), time.process_time()
    return 1000 * (ended[0] - began[0]), 1000 * (ended[1] - began[1])


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
