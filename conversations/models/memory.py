"""Memories of users, stored by the memory tools in `conversations.tools`."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

MAX_TEXT = 1000  # characters
MAX_COUNT = 500  # of one user


class TooManyMemories(Exception):
    """The limit of memories is reached; delete one first."""


class MemoryQuerySet(models.QuerySet["Memory"]):
    def of(self, user_id: int | None) -> MemoryQuerySet:
        """The memories of one user that are not deleted, newest first."""
        return self.filter(user_id=user_id, deleted_at=None)

    def remember(self, user_id: int, text: str, conversation_id: str = "") -> Memory:
        """Store a memory, or return the existing row with the same text.

        Raises TooManyMemories.
        """
        text = " ".join(text.split())
        mine = self.of(user_id)
        if known := mine.filter(text=text).first():
            known.save(update_fields=["updated_at"])
            return known
        if mine.count() >= MAX_COUNT:
            raise TooManyMemories
        return self.create(
            user_id=user_id, text=text, conversation_id=conversation_id or None
        )


class Memory(models.Model):
    """A fact about a user, as text that a model stored."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="memories"
    )
    text = models.TextField(max_length=MAX_TEXT)
    conversation = models.ForeignKey(
        "conversations.Conversation",
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("The conversation in which the memory was saved."),
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects = MemoryQuerySet.as_manager()

    class Meta:
        ordering = ["-updated_at", "-pk"]
        verbose_name_plural = _("memories")
        indexes = [
            models.Index(
                fields=["user", "-updated_at"],
                condition=models.Q(deleted_at=None),
                name="conversations_memory_live",
            )
        ]

    def __str__(self) -> str:
        return f"memory {self.pk}"  # its text must not get into logs

    def forget(self) -> None:
        """Hide it from its owner and from models; retention deletes the row."""
        self.deleted_at = timezone.now()
        self.save(update_fields=["deleted_at"])


def forget(user_id: int, pk: int) -> bool:
    """False where the user has no such memory."""
    found: Any = Memory.objects.of(user_id).filter(pk=pk).first()
    if found is not None:
        found.forget()
    return found is not None
