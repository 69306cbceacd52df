"""Conversations found by the words in their titles and messages.

For people, who see the place; `conversations.tools` looks through the same messages for
models.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, TextField
from django.db.models.functions import Cast

from conversations.models import Conversation, Item
from conversations.search import fragments, words_of
from llm.wire.items import Item as ItemPayload
from llm.wire.items import text_of

MOST_SEARCHED = 2000  # messages that one search looks through
MOST_FOUND = 50  # conversations
MAX_QUERY = 200  # characters

_BEFORE, _EXCERPT = 30, 120  # characters of a message that are shown with the words


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    is_sought: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation in which all words stand, in its title or one message with it."""

    id: str
    title: Sequence[Piece]
    turn_id: str = ""  # where the message stands; "" where the title says it all
    excerpt: Sequence[Piece] = ()


def find(user: Any, query: str) -> list[Found]:
    """The user's conversations, those first in which something was said last.

    Words may begin anywhere in a word, as in languages that write none apart. A query
    without a word finds nothing.
    """
    query = query[:MAX_QUERY]
    words = [re.compile(re.escape(word), re.IGNORECASE) for word in words_of(query)]
    if not words:
        return []
    rows = Conversation.objects.of(user)
    latest = rows.order_by("-updated_at", "-pk").values_list("pk", "title")
    titles = dict(latest[:MOST_SEARCHED])
    told = {
        pk: Found(pk, _pieces(title, words))
        for pk, title in titles.items()
        if _has_all(title, words)
    }
    for pk, turn_id, text in _texts(rows, fragments(query)):
        title = titles.get(pk, "")
        if pk not in told and _has_all(f"{title}\n{text}", words):
            excerpt = _pieces(_excerpt(text, words), words)
            told[pk] = Found(pk, _pieces(title, words), turn_id, excerpt)
    return [told[pk] for pk in titles if pk in told][:MOST_FOUND]


def messages_of(
    conversations: Any, texts: Sequence[str] | None
) -> Iterator[tuple[str, str, ItemPayload]]:
    """Conversation, turn and payload of messages with one of the texts, newest first.

    `texts`: see `search.fragments`. What is sorted are keys: a common word stands in
    nearly all messages, and to sort those takes longer than to read them.
    """
    rows = Item.objects.filter(turn__conversation__in=conversations, type="message")
    if texts is not None:
        fits = reduce(or_, (Q(stored__icontains=text) for text in texts), Q(pk__in=[]))
        rows = rows.annotate(stored=Cast("payload", TextField())).filter(fits)
    newest = ("-turn__created_at", "-position")
    keys = rows.order_by(*newest).values("pk")[:MOST_SEARCHED]
    found = Item.objects.filter(pk__in=keys).order_by(*newest)
    told = found.values_list("turn__conversation_id", "turn_id", "payload")
    for pk, turn_id, payload in told:
        is_said = payload.get("role") in ("user", "assistant")
        if is_said and not payload.get("parley:interrupted"):
            yield pk, turn_id, payload


def _texts(
    conversations: Any, texts: Sequence[str] | None
) -> Iterator[tuple[str, str, str]]:
    for pk, turn_id, payload in messages_of(conversations, texts):
        yield pk, turn_id, unicodedata.normalize("NFC", text_of(payload))


def _has_all(text: str, words: Iterable[re.Pattern[str]]) -> bool:
    return all(word.search(text) for word in words)


def _excerpt(text: str, words: Iterable[re.Pattern[str]]) -> str:
    """The line around the first of the words."""
    line = " ".join(text.split())
    places = [match.start() for word in words if (match := word.search(line))]
    start = max(0, min(places, default=0) - _BEFORE)
    if start:
        start = line.find(" ", start, start + _BEFORE) + 1 or start
    end = start + _EXCERPT
    return f"{'…' * bool(start)}{line[start:end]}{'…' * (end < len(line))}"


def _pieces(text: str, words: Iterable[re.Pattern[str]]) -> list[Piece]:
    any_word = "|".join(word.pattern for word in words)
    split = re.split(f"({any_word})", text, flags=re.IGNORECASE)
    return [Piece(part, bool(n % 2)) for n, part in enumerate(split) if part]
