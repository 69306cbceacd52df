"""Filters of the search in a user's conversations: model, dates, folder, tool, tag."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from conversations.models import Conversation, ConversationQuerySet, ToolCall, Turn
from llm.models import LanguageModel

ARCHIVED = ("no", "yes", "only")  # "yes": archived conversations too
#: No message is older. East of Greenwich the start of year 1 has no UTC time.
_FIRST = date(1970, 1, 1)
API = ("yes", "no", "only")  # conversations that responses of the gateway opened


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilters:
    """What conversations must have to be found. Empty values are no condition, nor is
    "yes" of `archived` and `api`.

    `model` and `tool` are names that any turn of the conversation has used. The dates,
    inclusive and in the server's time zone, are those of the message that was found,
    and of the last activity where only the title matches. `since` before 1970 is no
    condition.
    """

    model: str = ""
    since: date | None = None
    until: date | None = None
    folder: int | None = None
    tool: str = ""
    tag: str = ""
    archived: str = "yes"
    api: str = "yes"

    def __bool__(self) -> bool:
        """Whether there is a condition."""
        return self != SearchFilters()

    def limit(self, rows: ConversationQuerySet) -> ConversationQuerySet:
        """The conversations with all that is asked for except the dates."""
        turns = Turn.objects.filter(conversation=OuterRef("pk"))
        if self.model:
            used = turns.filter(language_model__in=models_named(self.model))
            rows = rows.filter(Exists(used))
        if self.tool:
            calls = ToolCall.objects.filter(turn__conversation=OuterRef("pk"))
            rows = rows.filter(Exists(calls.filter(name=self.tool)))
        if self.folder is not None:
            rows = rows.filter(folder=self.folder)
        if self.tag:
            tags = Conversation.tags.through.objects.filter(tag__name=self.tag)
            rows = rows.filter(Exists(tags.filter(conversation=OuterRef("pk"))))
        if self.archived != "yes":
            rows = rows.filter(archived_at__isnull=self.archived == "no")
        if self.api != "yes":
            rows = rows.filter(is_from_api=self.api == "only")
        return rows

    def limit_activity(self, rows: ConversationQuerySet) -> ConversationQuerySet:
        """The conversations with all that is asked for, by their last activity."""
        return self.limit(rows).filter(self._dates("updated_at"))

    def limit_turns(self, turns: QuerySet[Turn], user: Any) -> QuerySet[Turn]:
        """The turns of the user with all that is asked for."""
        theirs = self.limit(Conversation.objects.of(user)).order_by()
        return turns.filter(
            self._dates("created_at"), conversation__in=theirs.values("pk")
        )

    def _dates(self, column: str) -> Q:
        condition = Q()
        if self.since and self.since >= _FIRST:
            condition &= Q(**{f"{column}__gte": _begin(self.since)})
        if self.until and self.until < date.max:
            condition &= Q(**{f"{column}__lt": _begin(self.until + timedelta(days=1))})
        return condition


def models_named(name: str) -> list[int]:
    """Ids of the models with this public name, those that are switched off too."""
    rows = LanguageModel.objects.select_related("provider")
    return [row.pk for row in rows if row.public_name == name]


def _begin(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))
