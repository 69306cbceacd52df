"""The sidebar: a user's conversations by last activity, and search results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any

from django.db.models import Count, Exists, OuterRef, Q
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from conversations.models import (
    Conversation,
    ConversationQuerySet,
    Folder,
    Participant,
    Question,
    Turn,
)
from conversations.models.last_seen import with_unread
from conversations.search import results as finding
from conversations.search.results import MAX_QUERY, SearchResults, find_conversations

PAGE = 60  # conversations
MAX_PINNED = 200  # conversations that are shown first
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BOUNDARY = re.compile(r"([0-9]{1,17})-([A-Za-z0-9_]{1,64})")  # microseconds and id
LONGEST = 600  # conversations per list; older ones follow in further lists


@dataclass(frozen=True, slots=True)
class Sidebar:
    groups: Sequence[tuple[str, Sequence[Conversation]]]
    more: int | None  # the `size` that shows more; None if all are shown
    before: str = ""  # the list has conversations older than this place; "" for all
    older: str = ""  # the `before` of the next list; "" if there is none
    group_questions: int = (
        0  # open questions that are assigned to one of the user's groups
    )
    open_questions: int = 0  # all open questions that the user may decide
    query: str = ""  # the search query
    results: SearchResults = field(default_factory=SearchResults)
    shared: Sequence[Conversation] = ()  # in which the user takes part
    invitations: int = 0  # that the user has not answered
    start: int = 0  # number of the first result that is shown
    pinned: Sequence[Conversation] = ()
    folders: Sequence[Folder] = ()
    folder: Folder | None = None  # whose conversations are shown; None for all

    @property
    def next_start(self) -> int | None:
        return self.start + finding.PAGE if self.results.has_more else None

    @property
    def previous_start(self) -> int | None:
        return max(0, self.start - finding.PAGE) if self.start else None


def sidebar(
    user: Any,
    size: int = PAGE,
    query: str = "",
    before: str = "",
    start: int = 0,
    folder_id: int | None = None,
) -> Sidebar:
    """The newest conversations, older than the place `before` if it is set.

    Each is annotated with `is_running`, `is_waiting` and `is_unread`. Pinned ones come
    first, and archived and temporary ones are left out. With a `folder_id` the list has
    this folder's conversations. With a `query` the sidebar has no list but the search
    results from number `start` on.
    """
    open_questions, group_questions = _count_questions(user)
    if query := query.strip()[:MAX_QUERY]:
        results = find_conversations(user, query, start)
        return Sidebar(
            [],
            None,
            group_questions=group_questions,
            open_questions=open_questions,
            query=query,
            results=results,
            start=start,
        )
    size = max(PAGE, min(size, LONGEST))
    folders = list(Folder.objects.of(user))
    folder = next((each for each in folders if each.pk == folder_id), None)
    unfinished = Turn.objects.not_finished().filter(conversation=OuterRef("pk"))
    listed = Conversation.objects.of(user).kept().for_people()
    listed = listed.filter(archived_at=None)
    if folder:
        listed = listed.filter(folder=folder)
    waiting = unfinished.filter(status=Turn.Status.WAITING)
    states = {"is_running": Exists(unfinished), "is_waiting": Exists(waiting)}
    listed = with_unread(listed.annotate(**states), user)
    pinned = listed.filter(pinned_at__isnull=False).order_by("-pinned_at", "-pk")
    rows = _older_than(before, listed.filter(pinned_at=None))
    found = list(rows.order_by("-updated_at", "-pk")[: size + 1])
    has_more = len(found) > size
    return Sidebar(
        groups=list(group_by_age(found[:size], timezone.localdate())),
        more=size + PAGE if has_more and size < LONGEST else None,
        before=before,
        older=_boundary_of(found[size - 1]) if has_more and size >= LONGEST else "",
        shared=_shared_with(user) if not before else (),
        invitations=Participant.objects.open_invitations(user).count(),
        group_questions=group_questions,
        open_questions=open_questions,
        pinned=[] if before else list(pinned[:MAX_PINNED]),
        folders=folders,
        folder=folder,
    )


def _shared_with(user: Any) -> list[Conversation]:
    joined = Participant.objects.joined().filter(user_id=user.pk)
    rows = Conversation.objects.filter(pk__in=joined.values("conversation_id"))
    return list(rows.order_by("-updated_at", "-pk")[:PAGE])


def _boundary_of(row: Conversation) -> str:
    """Where the list goes on, whatever becomes of this conversation."""
    return f"{(row.updated_at - _EPOCH) // timedelta(microseconds=1)}-{row.pk}"


def _older_than(before: str, rows: ConversationQuerySet) -> ConversationQuerySet:
    """The rows behind this place; all rows if it is none."""
    boundary = _BOUNDARY.fullmatch(before)
    if boundary is None:
        return rows
    at = _EPOCH + timedelta(microseconds=int(boundary[1]))
    return rows.filter(Q(updated_at__lt=at) | Q(updated_at=at, pk__lt=boundary[2]))


def _count_questions(user: Any) -> tuple[int, int]:
    """Numbers of open questions that the user may decide: all, and those of groups.

    Questions of groups are counted apart because they do not appear in the user's own
    conversations.
    """
    open_ones = Question.objects.open().filter(expires_at__gt=timezone.now())
    to_group = Count("pk", distinct=True, filter=Q(group__isnull=False))
    theirs = open_ones.answerable_by(user)
    counted = theirs.aggregate(waiting=Count("pk", distinct=True), asked=to_group)
    return counted["waiting"], counted["asked"]


def group_by_age(
    conversations: Iterable[Conversation], today: date
) -> Iterable[tuple[str, list[Conversation]]]:
    for label, group in groupby(conversations, lambda row: _label(row, today)):
        yield label, list(group)


def _label(conversation: Conversation, today: date) -> str:
    day = timezone.localdate(conversation.updated_at)
    match (today - day).days:
        case days if days <= 0:
            return _("Today")
        case 1:
            return _("Yesterday")
        case days if days <= 7:
            return _("Previous 7 days")
        case days if days <= 30:
            return _("Previous 30 days")
        case _:
            return date_format(day, "F Y")
