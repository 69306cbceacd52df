"""The list of a user's conversations, newest first, by when something was last said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q
from django.utils import timezone
from django.utils.formats import date_format

from conversations.finding import MAX_QUERY, Found, find
from conversations.models import Conversation, Question, Turn

PAGE = 60  # conversations
_MOST = 2000  # conversations a list ever shows


@dataclass(frozen=True, slots=True)
class Sidebar:
    groups: Sequence[tuple[str, Sequence[Conversation]]]
    more: int | None  # how many to ask for to see more; None where this is all
    asked: int = 0  # questions put to a group of the user's
    waiting: int = 0  # all questions that the user may decide
    query: str = ""  # what was sought
    found: Sequence[Found] = ()


def sidebar(user: Any, size: int = PAGE, query: str = "") -> Sidebar:
    """Each conversation says whether it `is_running`. Two queries.

    With a `query`, what is found stands in the place of the list.
    """
    waiting, asked = _questions(user)
    if query := query.strip()[:MAX_QUERY]:
        told = find(user, query)
        return Sidebar([], None, asked, waiting, query=query, found=told)
    size = max(PAGE, min(size, _MOST))
    rows = Conversation.objects.of(user).order_by("-updated_at", "-pk")
    unfinished = Turn.objects.unfinished().filter(conversation=OuterRef("pk"))
    found = list(rows.annotate(is_running=Exists(unfinished))[: size + 1])
    has_more = len(found) > size and size < _MOST
    return Sidebar(
        groups=list(grouped(found[:size], timezone.localdate())),
        more=size + PAGE if has_more else None,
        asked=asked,
        waiting=waiting,
    )


def _questions(user: Any) -> tuple[int, int]:
    """All that the user may decide, and those put to a group: one's own stand in one's
    conversations, a group's are elsewhere."""
    open_ones = Question.objects.open().filter(expires_at__gt=timezone.now())
    to_group = Count("pk", distinct=True, filter=Q(group__isnull=False))
    theirs = open_ones.answerable_by(user)
    counted = theirs.aggregate(waiting=Count("pk", distinct=True), asked=to_group)
    return counted["waiting"], counted["asked"]


def grouped(
    conversations: Iterable[Conversation], today: date
) -> Iterable[tuple[str, list[Conversation]]]:
    for label, group in groupby(conversations, lambda row: _label(row, today)):
        yield label, list(group)


def _label(conversation: Conversation, today: date) -> str:
    day = timezone.localdate(conversation.updated_at)
    match (today - day).days:
        case days if days <= 0:
            return "Today"
        case 1:
            return "Yesterday"
        case days if days <= 7:
            return "Previous 7 days"
        case days if days <= 30:
            return "Previous 30 days"
        case _:
            return date_format(day, "F Y")
