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

from conversations.models import Conversation, Item, Turn
from conversations.models.limits.conversation_limit import limit_of
from conversations.search.filters import SearchFilters
from conversations.search.matching import Query, fold
from conversations.search.message_search import MessageSearch
from conversations.search.stored_messages import searchable_text

PAGE = 50  # conversations
MAX_START = 1_000_000  # the largest `start`; each skipped conversation costs time
MAX_QUERY = 200  # characters
FILTERED = 400  # messages that one query compares with filters

_BEFORE, _EXCERPT = 30, 120  # characters shown before the first match, and in all


@dataclass(frozen=True, slots=True)
class HighlightedText:
    text: str
    is_match: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A conversation whose title, or title and one message, contain all the words."""

    id: str
    title: Sequence[HighlightedText]
    turn_id: str = ""  # the turn of the message; "" for a match of the title alone
    excerpt: Sequence[HighlightedText] = ()


@dataclass(frozen=True, slots=True)
class SearchResults:
    """A page of search results."""

    conversations: Sequence[SearchResult] = ()
    has_more: bool = False
    is_complete: bool = True  # False while old messages are still being indexed


@dataclass(frozen=True, slots=True)
class _Match:
    """A match; `item` is None where only the title matches."""

    conversation: str
    item: int | None = None


def find_conversations(
    user: Any,
    query: str,
    start: int = 0,
    filters: SearchFilters | None = None,
    size: int = 0,
) -> SearchResults:
    """A page of the user's conversations, `size` (else PAGE) from result `start` on:
    first those with matching messages, latest match first, then those where only the
    title matches.

    An empty query has no results, except with `filters`, which may have no condition:
    then all conversations that pass them are found, last activity first. A query of
    punctuation or emoji alone finds nothing: to delete its results would else delete
    everything.
    """
    wanted = Query.of(query[:MAX_QUERY])
    start, size = min(start, MAX_START), size or PAGE
    if filters is not None and not query.strip():
        return _browse(user, filters, start, size)
    if not wanted:
        return SearchResults()
    search = MessageSearch.of(user.pk, wanted)
    found = _find_matches(search)
    if filters or limit_of(user) is not None:
        found = _find_filtered(search, filters or SearchFilters(), user)
    matches = list(islice(found, start, start + size + 1))
    return SearchResults(
        build_results(matches[:size], wanted),
        len(matches) > size,
        search.unindexed.is_complete,
    )


def _find_matches(search: MessageSearch) -> Iterator[_Match]:
    """Each conversation once."""
    seen = set()
    for match in search:
        if match.conversation not in seen:
            seen.add(match.conversation)
            yield _Match(match.conversation, match.item)
    for pk in search.titles():
        if pk not in seen:
            yield _Match(pk)


def _browse(user: Any, filters: SearchFilters, start: int, size: int) -> SearchResults:
    rows = filters.limit_activity(Conversation.objects.of(user).kept())
    newest = rows.order_by("-updated_at", "-pk").values_list("pk", "title")
    found = list(newest[start : start + size + 1])
    shown = [
        SearchResult(pk, [HighlightedText(_normalize(title), False)] if title else [])
        for pk, title in found[:size]
    ]
    return SearchResults(shown, len(found) > size)


def _find_filtered(
    search: MessageSearch, filters: SearchFilters, user: Any
) -> Iterator[_Match]:
    """As `_find_matches`; each message passes the filters, not only one of its
    conversation, so a later message that does not hides no earlier one that does."""
    seen = set()
    rest = iter(search)
    while chunk := list(islice(rest, FILTERED)):
        turns = Turn.objects.filter(pk__in={match.turn for match in chunk})
        passing = set(filters.limit_turns(turns, user).values_list("pk", flat=True))
        for match in chunk:
            if match.turn in passing and match.conversation not in seen:
                seen.add(match.conversation)
                yield _Match(match.conversation, match.item)
    titles = [pk for pk in search.titles() if pk not in seen]
    rows = Conversation.objects.of(user).filter(pk__in=titles)
    passing = set(filters.limit_activity(rows).values_list("pk", flat=True))
    yield from (_Match(pk) for pk in titles if pk in passing)


def build_results(matches: Sequence[_Match], query: Query) -> list[SearchResult]:
    titles = Conversation.objects.in_bulk([match.conversation for match in matches])
    items = Item.objects.in_bulk([match.item for match in matches if match.item])
    results = []
    for match in matches:
        if match.conversation not in titles:
            continue  # it was erased since it was found
        title = _normalize(titles[match.conversation].title)
        item = items.get(match.item or 0)
        if item is None or query.matches(fold(title)):
            results.append(SearchResult(match.conversation, _highlight(title, query)))
            continue
        excerpt = _excerpt(_normalize(searchable_text(item.payload)), query)
        result = SearchResult(
            match.conversation, _highlight(title, query), item.turn_id, excerpt
        )
        results.append(result)
    return results


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _excerpt(text: str, query: Query) -> list[HighlightedText]:
    """The text around the first match, on one line."""
    line = " ".join(text.split())
    first = query.first_position(line)
    start = max(0, first - _BEFORE)
    if start:
        start = line.find(" ", start, start + _BEFORE) + 1 or start
    end = start + _EXCERPT
    cut = f"{'…' * bool(start)}{line[start:end]}{'…' * (end < len(line))}"
    return _highlight(cut, query)


def _highlight(text: str, query: Query) -> list[HighlightedText]:
    pieces, at = [], 0
    for start, end in query.match_spans(text):
        if start > at:
            pieces.append(HighlightedText(text[at:start], False))
        pieces.append(HighlightedText(text[start:end], True))
        at = end
    if at < len(text):
        pieces.append(HighlightedText(text[at:], False))
    return pieces
