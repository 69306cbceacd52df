"""Row of when a user last looked at a conversation."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Case, F, OuterRef, Subquery, When
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.models.conversation import Conversation, ConversationQuerySet
from conversations.models.turn import Turn


class LastSeenQuerySet(models.QuerySet["LastSeen"]):
    def note(self, user: Any, conversation: Conversation) -> None:
        """The user sees the conversation now."""
        self.bulk_create(
            [self.model(user=user, conversation=conversation)],
            update_conflicts=True,
            unique_fields=["user", "conversation"],
            update_fields=["at"],
        )

    def note_page(
        self, user: Any, conversation: Conversation, last: Turn | None
    ) -> None:
        """The user opens the page; `last` is its last turn. Writes only what is new."""
        at = self.filter(user=user, conversation=conversation)
        known = at.values_list("at", flat=True).first()
        ended = last.finished_at if last else None
        if known is None or (ended and ended > known):
            self.note(user, conversation)


def with_unread(rows: ConversationQuerySet, user: Any) -> ConversationQuerySet:
    """The conversations, each with `is_unread`: whether its last turn has ended since
    the user last looked. One that the user has never opened is not unread."""
    turns = Turn.objects.not_deleted().filter(conversation=OuterRef("pk"))
    last = turns.order_by("-created_at", "-pk").values("finished_at")[:1]
    seen = LastSeen.objects.filter(user=user.pk, conversation=OuterRef("pk"))
    is_new = When(last_finished__gt=F("seen_at"), then=True)
    return rows.alias(
        last_finished=Subquery(last), seen_at=Subquery(seen.values("at")[:1])
    ).annotate(is_unread=Case(is_new, default=False))


class LastSeen(models.Model):
    """An answer that ended later than this is new to the user."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False
    )
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="+")
    at = models.DateTimeField(
        default=timezone.now,
        help_text=_("When the user last had the conversation on screen."),
    )

    objects = LastSeenQuerySet.as_manager()

    class Meta:
        verbose_name_plural = _("last seen conversations")
        constraints = [
            models.UniqueConstraint(
                fields=["user", "conversation"], name="conversations_last_seen_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.conversation_id} {self.at:%Y-%m-%d %H:%M}"
