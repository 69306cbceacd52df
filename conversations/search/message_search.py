"""Search of a user's messages, in the index and in turns that it does not have yet."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from django.db.models import Exists, OuterRef

from conversations.models import Conversation, Item, Turn
from conversations.search.index_queries import CHUNK, search_index
from conversations.search.matching import Query, fold
from conversations.search.stored_messages import (
    HAS_NEW_TITLE,
    find_outdated,
    text_of_row,
    with_stored,
)

MAX_UNINDEXED_TEXT = 20_000_000  # characters of unindexed messages per search
MAX_UNINDEXED = 2000  # newest unindexed turns that a search reads directly


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
        text = text_of_row(row)
        return self._fits_text(fold(f"{row.turn.conversation.title}\n{text}"))

    def _fits_text(self, folded: str) -> bool:
        if self.needs_all:
            return self.query.matches(folded)
        return self.query.score(folded) > 0

    def _search_index(self) -> Iterator[Match]:
        rows = search_index(self.user_id, self._groups())
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
        found = with_stored(Item.objects.all()).in_bulk(
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
    is_complete: bool  # false if messages may be missed until they are indexed

    @classmethod
    def of(cls, user_id: int) -> Unindexed:
        # No join: without statistics SQLite would start from all conversations of the
        # user instead of the few turns that are not indexed.
        is_theirs = Exists(
            Conversation.objects.filter(
                pk=OuterRef("conversation"),
                owner=user_id,
                deleted_at=None,
                is_temporary=False,
            )
        )
        rows = Turn.objects.filter(is_theirs, is_indexed=False, deleted_at=None)
        newest = rows.order_by("-created_at").values_list("pk", flat=True)
        turns = list(newest[: MAX_UNINDEXED + 1])
        is_complete = len(turns) <= MAX_UNINDEXED and not (
            find_outdated().filter(owner=user_id).exists()
        )
        return cls(user_id, frozenset(turns[:MAX_UNINDEXED]), is_complete)

    def items(self) -> Iterator[Item]:
        """Their messages, newest first, up to MAX_UNINDEXED_TEXT characters."""
        if not self.turns:
            return
        rows = Item.objects.filter(turn__in=self.turns, type="message")
        newest = with_stored(rows).order_by("-pk")
        read = 0
        for row in newest.iterator(chunk_size=20):
            if text := text_of_row(row):
                yield row
                read += len(text)
            if read > MAX_UNINDEXED_TEXT:
                self.is_complete = False
                return

    def titles(self) -> list[tuple[str, str]]:
        """Ids and titles, newest first, of conversations whose title is not indexed."""
        rows = Conversation.objects.filter(
            HAS_NEW_TITLE, owner=self.user_id, deleted_at=None, is_temporary=False
        )
        # Sorted here: with ORDER BY SQLite would scan all conversations.
        found = rows.order_by().values_list("updated_at", "pk", "title")
        newest = heapq.nlargest(MAX_UNINDEXED, found.iterator())
        return [(pk, title) for _, pk, title in newest]
