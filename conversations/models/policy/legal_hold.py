"""Legal holds: while one stands, nothing of a person or a conversation is erased."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext_lazy as _

from conversations.audit.record import record_event
from llm.errors import BadRequest


class UnderLegalHold(BadRequest):
    """This must not be erased at present; ask an administrator."""

    code, status = "E_LEGAL_HOLD", 409
    openai_code = "legal_hold"


class LegalHold(models.Model):
    """Of a user, with all that is the user's, or of one conversation. The keys are
    protected, so that no deletion of the user or the conversation gets past it."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="legal_holds",
        help_text=_("Everything that this person has here."),
    )
    conversation = models.ForeignKey(
        "conversations.Conversation",
        models.PROTECT,
        null=True,
        blank=True,
        related_name="legal_holds",
        help_text=_("Or only this conversation."),
    )
    reason = models.CharField(_("reason"), max_length=500)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        editable=False,
        related_name="+",
    )

    class Meta:
        ordering = ["-created_at"]
        verbose_name = _("legal hold")
        default_permissions = ("add", "delete", "view")
        permissions = [("erase_user", "Can erase users and all their data")]
        constraints = [
            models.CheckConstraint(
                condition=Q(user=None) ^ Q(conversation=None),
                name="conversations_hold_of_one",
                violation_error_message=_("Choose a user or a conversation."),
            ),
        ]

    def __str__(self) -> str:
        return f"legal hold {self.pk}"

    @property
    def concerned_user(self) -> int | None:
        if self.conversation is not None:
            return self.conversation.owner_id
        return self.user_id

    def record(self, verb: str, reason: str) -> None:
        record_event(
            f"hold.{verb}",
            target=self,
            subject=self.concerned_user,
            reason=reason,
            details={"user": self.user_id, "conversation": self.conversation_id},
        )


def of_held_user(column: str) -> Exists:
    """For a queryset: the user of this column is held."""
    return Exists(LegalHold.objects.filter(user=OuterRef(column)))


def of_held_conversation(conversation: str, owner: str) -> Q:
    """For a queryset with these columns: the conversation or its owner is held."""
    held = Exists(LegalHold.objects.filter(conversation=OuterRef(conversation)))
    return Q(held) | Q(of_held_user(owner))


def exclude_held(rows: QuerySet[Any], column: str) -> QuerySet[Any]:
    """Without the rows of held users."""
    return rows.filter(~of_held_user(column))


def check_user_not_held(user_id: Any) -> None:
    """Raises UnderLegalHold."""
    if LegalHold.objects.filter(user=user_id).exists():
        raise UnderLegalHold


def is_conversation_held(conversation_id: str, owner_id: int | None) -> bool:
    of_one = Q(conversation=conversation_id)
    return LegalHold.objects.filter(of_one | Q(user=owner_id)).exists()


def check_conversation_not_held(conversation_id: str, owner_id: int | None) -> None:
    """Raises UnderLegalHold."""
    if is_conversation_held(conversation_id, owner_id):
        raise UnderLegalHold
