"""Search of a user's conversations by words in titles and messages, for the pages.

The results have excerpts with highlighted words. `conversations.tools` searches the
same messages for models.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from conversations.models import Conversation, Item
from conversations.search import Query, fold
from conversations.search_index import Search, searchable_text

PAGE = 50  # conversations
LAST_START = 1_000_000  # the largest `start`; each skipped conversation costs time
MAX_QUERY = 200  # characters

_BEFORE, _EXCERPT = 30, 120  # characters shown before the first match, and in all


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    is_sought: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation whose title, or title and one message, contain all the words."""

    id: str
    title: Sequence[Piece]
    turn_id: str = ""  # the turn of the message; "" for a match of the title alone
    excerpt: Sequence[Piece] = ()


@dataclass(frozen=True, slots=True)
class Results:
    """A page of search results."""

    found: Sequence[Found] = ()
    has_more: bool = False
    is_complete: bool = True  # False while old messages are still being indexed


@dataclass(frozen=True, slots=True)
class _Place:
    """A match; `item` is None where only the title matches."""

    conversation: str
    item: int | None = None


def find(user: Any, query: str, start: int = 0) -> Results:
    """A page of the user's conversations, from result `start` on: first those with
    matching messages, latest match first, then those where only the title matches.

    A query without words has no results.
    """
    wanted = Query.of(query[:MAX_QUERY])
    if not wanted:
        return Results()
    search = Search.of(user.pk, wanted)
    start = min(start, LAST_START)
    places = list(islice(_places(search), start, start + PAGE + 1))
    return Results(
        _shown(places[:PAGE], wanted), len(places) > PAGE, search.unindexed.is_complete
    )


def _places(search: Search) -> Iterator[_Place]:
    """Each conversation once."""
    seen = set()
    for match in search:
        if match.conversation not in seen:
            seen.add(match.conversation)
            yield _Place(match.conversation, match.item)
    for pk in search.titles():
        if pk not in seen:
            yield _Place(pk)


def _shown(places: Sequence[_Place], query: Query) -> list[Found]:
    titles = Conversation.objects.in_bulk([place.conversation for place in places])
    items = Item.objects.in_bulk([place.item for place in places if place.item])
    shown = []
    for place in places:
        title = _normal(titles[place.conversation].title)
        item = items.get(place.item or 0)
        if item is None or query.matches(fold(title)):
            shown.append(Found(place.conversation, _pieces(title, query)))
            continue
        excerpt = _excerpt(_normal(searchable_text(item.payload)), query)
        found = Found(place.conversation, _pieces(title, query), item.turn_id, excerpt)
        shown.append(found)
    return shown


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _excerpt(text: str, query: Query) -> list[Piece]:
    """The text around the first match, on one line."""
    line = " ".join(text.split())
    first = query.first_place(line)
    start = max(0, first - _BEFORE)
    if start:
        start = line.find(" ", start, start + _BEFORE) + 1 or start
    end = start + _EXCERPT
    cut = f"{'…' * bool(start)}{line[start:end]}{'…' * (end < len(line))}"
    return _pieces(cut, query)


def _pieces(text: str, query: Query) -> list[Piece]:
    pieces, at = [], 0
    for start, end in query.places(text):
        if start > at:
            pieces.append(Piece(text[at:start], False))
        pieces.append(Piece(text[start:end], True))
        at = end
    if at < len(text):
        pieces.append(Piece(text[at:], False))
    return pieces
