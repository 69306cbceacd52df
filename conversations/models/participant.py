"""Row of a person whom the owner of a conversation has invited to it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models, transaction
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.audit.record import record_event
from conversations.models.conversation import Conversation


class Role(models.TextChoices):
    """What a participant may do; each role includes the ones before it."""

    VIEWER = "viewer", _("read")
    WRITER = "writer", _("read and write")
    APPROVER = "approver", _("read, write and decide about tool calls")


WRITING_ROLES = (Role.WRITER, Role.APPROVER)


class ParticipantQuerySet(models.QuerySet["Participant"]):
    def current(self) -> ParticipantQuerySet:
        """Invitations that are neither declined, left nor revoked."""
        return self.filter(revoked_at=None)

    def joined(self) -> ParticipantQuerySet:
        """Participants who have accepted, of conversations that exist, are not
        temporary and whose owner may sign in."""
        return self.current().filter(
            accepted_at__isnull=False,
            conversation__is_temporary=False,
            conversation__deleted_at=None,
            conversation__owner__is_active=True,
        )

    def writers(self) -> ParticipantQuerySet:
        return self.joined().filter(role__in=WRITING_ROLES)

    def approvers(self) -> ParticipantQuerySet:
        return self.joined().filter(role=Role.APPROVER)

    def open_invitations(self, user: Any) -> ParticipantQuerySet:
        """Invitations that `user` has not answered."""
        return self.current().filter(
            user_id=user.pk,
            accepted_at=None,
            conversation__is_temporary=False,
            conversation__deleted_at=None,
            conversation__owner__is_active=True,
        )


class Participant(models.Model):
    """An invitation, and after it is accepted a participant.

    `user` is empty where nobody has the invited name: the owner sees the same row, so
    that an invitation does not reveal which names exist.
    """

    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="participants"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.CASCADE,
        null=True,
        blank=True,
        related_name="participations",
    )
    name = models.CharField(max_length=150, help_text=_("The name that was invited."))
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.VIEWER)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    accepted_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects = ParticipantQuerySet.as_manager()

    class Meta:
        ordering = ["created_at", "pk"]
        indexes = [
            models.Index(
                fields=["user", "conversation"],
                condition=models.Q(revoked_at=None),
                name="conversations_participant_now",
            )
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "name"],
                condition=models.Q(revoked_at=None),
                name="conversations_participant_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name}: {self.role}"

    @property
    def may_write(self) -> bool:
        return self.role in WRITING_ROLES

    @transaction.atomic
    def accept(self) -> None:
        """Other invitations of the person to the conversation, by a former name, end:
        otherwise the widest of their roles would count."""
        of_conversation = Conversation.objects.filter(pk=self.conversation_id)
        of_conversation.select_for_update(no_key=True).only("pk").first()
        rows = Participant.objects.current().filter(
            conversation=self.conversation_id, user=self.user_id
        )
        if rows.filter(pk=self.pk, accepted_at=None).update(accepted_at=timezone.now()):
            for other in rows.exclude(pk=self.pk):
                other.revoke()

    def revoke(self) -> None:
        """End it, whether the owner revokes or the participant leaves. Idempotent."""
        rows = Participant.objects.current().filter(pk=self.pk)
        if rows.update(revoked_at=timezone.now()):
            owner = self.conversation.owner_id
            record_event("share.revoke", target=self, subject=owner)
