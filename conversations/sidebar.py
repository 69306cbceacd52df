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

from conversations.models import Conversation, Question, Turn

PAGE = 60  # conversations
_MOST = 2000  # conversations a list ever shows


@dataclass(frozen=True, slots=True)
class Sidebar:
    groups: Sequence[tuple[str, Sequence[Conversation]]]
    more: int | None  # how many to ask for to see more; None where this is all
    asked: int = 0  # questions put to a group of the user's
    waiting: int = 0  # all questions that the user may decide


def sidebar(user: Any, size: int = PAGE) -> Sidebar:
    """Each conversation says whether it `is_running`. Two queries."""
    size = max(PAGE, min(size, _MOST))
    rows = Conversation.objects.of(user).order_by("-updated_at", "-pk")
    unfinished = Turn.objects.unfinished().filter(conversation=OuterRef("pk"))
    found = list(rows.annotate(is_running=Exists(unfinished))[: size + 1])
    has_more = len(found) > size and size < _MOST
    return Sidebar(
        groups=list(grouped(found[:size], timezone.localdate())),
        more=size + PAGE if has_more else None,
        **_questions(user),
    )


def _questions(user: Any) -> dict[str, int]:
    """One's own questions stand in one's conversations; a group's are elsewhere."""
    open_ones = Question.objects.open().filter(expires_at__gt=timezone.now())
    to_group = Count("pk", distinct=True, filter=Q(group__isnull=False))
    theirs = open_ones.answerable_by(user)
    return theirs.aggregate(waiting=Count("pk", distinct=True), asked=to_group)


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
