"""The dearest conversations of a period, from the model calls of their turns.

Sums by conversation are not stored, so the newest `MAX_CALLS` calls are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Sum
from django.urls import reverse
from django.utils.translation import gettext as _

from conversations.models import Conversation, Turn
from llm.models import ModelCall
from llm.pricing.usage_counting import SEARCHES, TOKENS
from llm.pricing.usage_report import (
    Usage,
    UsageGroup,
    UsageQuery,
    UsageReport,
    created_between,
    report_usage,
)

MAX_CALLS = 100_000  # newest calls that a report reads
MAX_CONVERSATIONS = 1_000

_FAILED = Q(status=ModelCall.Status.FAILED)
_NO_TOKENS = ~Q(input_tokens__gt=0) & ~Q(output_tokens__gt=0)
#: A call whose cost is unknown, as `usage_counting` counts them.
UNPRICED = Q(cost__isnull=True) & ~(_FAILED & _NO_TOKENS)
_SUMS: Mapping[str, Any] = {
    "calls": Count("pk"),
    "failed": Count("pk", filter=_FAILED),
    **{name: Sum(name) for name in (*TOKENS, *SEARCHES, "cost", "saved_cost")},
    "unpriced": Count("pk", filter=UNPRICED),
    "unmeasured": Count(
        "pk", filter=Q(input_tokens__isnull=True, is_cached=False) & ~_FAILED
    ),
    "estimated": Count("pk", filter=Q(is_estimated=True)),
    "from_cache": Count("pk", filter=Q(is_cached=True)),
}


def report_conversations(query: UsageQuery) -> tuple[UsageReport, bool]:
    """A report whose groups are named by the ids of conversations, "" for calls of
    none; and whether the period has more than `MAX_CALLS` calls, of which only the
    newest are in the groups."""
    calls, is_cut = _newest_calls(query)
    turns = Turn.objects.filter(pk=OuterRef("turn_id")).order_by()
    owned = calls.annotate(place_id=Subquery(turns.values("conversation_id")[:1]))
    sums = {f"sum_{name}": each for name, each in _SUMS.items()}
    rows: Any = owned.order_by().values("place_id").annotate(**sums)
    # PostgreSQL puts NULL, an unknown cost, before all numbers.
    largest = (
        F(name).desc(nulls_last=True) for name in ("sum_cost", "sum_output_tokens")
    )
    dearest = rows.order_by(*largest, "place_id")
    groups = [
        UsageGroup(row["place_id"] or "", _usage(row))
        for row in dearest[:MAX_CONVERSATIONS]
    ]
    groups.sort(key=lambda each: (-each.usage.cost, -each.usage.tokens, each.name))
    report = report_usage(replace(query, grouping="model"))
    return replace(report, query=query, groups=groups), is_cut


def _newest_calls(query: UsageQuery) -> tuple[QuerySet[ModelCall], bool]:
    calls = ModelCall.objects.filter(**created_between(query.first, query.last))
    if query.user_id is not None:
        calls = calls.filter(user=query.user_id)
    newest = calls.order_by("-created_at").values_list("created_at", flat=True)
    oldest = next(iter(newest[MAX_CALLS : MAX_CALLS + 1]), None)
    if oldest is None:
        return calls, False
    return calls.filter(created_at__gt=oldest), True


def _usage(row: Mapping[str, Any]) -> Usage:
    counts: dict[str, Any] = {name: row[f"sum_{name}"] or 0 for name in _SUMS}
    for name in ("cost", "saved_cost"):
        counts[name] = Decimal(counts[name])
    return Usage(**counts)


def links_for_staff(report: UsageReport, user: Any) -> dict[str, tuple[str, str]]:
    """By id, the text and the address of each conversation: with its title for staff
    who may read other people's, else with its owner's name only."""
    ids = [group.name for group in report.groups if group.name]
    rows = Conversation.objects.filter(pk__in=ids).order_by()
    found = rows.values_list("pk", "title", "owner_id")
    owners = {owner for _pk, _title, owner in found}
    people = get_user_model()._default_manager.filter(pk__in=owners)
    names = {person.pk: person.get_username() for person in people}
    may_read = user.has_perm("conversations.inspect_turn")
    may_open = may_read and user.has_perm("conversations.view_conversation")
    links = {"": (_("without a conversation"), "")}
    for pk, title, owner in found:
        shown = title if may_read and title else pk
        name = "admin:conversations_conversation_change"
        address = reverse(name, args=[pk]) if may_open else ""
        links[pk] = f"{names.get(owner, '')}: {shown}", address
    return links


def links_for_owner(report: UsageReport, user: Any) -> dict[str, tuple[str, str]]:
    """As `links_for_staff`, of the conversations that the user may open."""
    ids = [group.name for group in report.groups if group.name]
    visible = Conversation.objects.visible_to(user).filter(pk__in=ids).order_by()
    links = {"": (_("without a conversation"), "")}
    for pk, title in visible.values_list("pk", "title"):
        links[pk] = title or pk, reverse("conversation", args=[pk])
    return links
