"""Memories of users, stored by the memory tools in `conversations.tools`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.audit.record import record_event

MAX_TEXT = 1000  # characters
MAX_COUNT = 500  # of one user


class UnusableText(Exception):
    """A memory is a text of 1 to 1000 characters."""


class TooManyMemories(Exception):
    """The limit of memories is reached; delete one first."""


class MemoryQuerySet(models.QuerySet["Memory"]):
    def of(self, user_id: int | None) -> MemoryQuerySet:
        """The memories of one user that are not deleted, newest first."""
        return self.filter(user_id=user_id, deleted_at=None)

    def changed_in(
        self, user_id: int | None, turn_ids: Collection[str]
    ) -> MemoryQuerySet:
        """The user's memories that a model stored in these turns, and that are there,
        and those that it forgot, and that are not restored."""
        stored = models.Q(turn__in=turn_ids, deleted_at=None)
        forgotten = models.Q(forgotten_in__in=turn_ids, deleted_at__isnull=False)
        return self.filter(stored | forgotten, user_id=user_id)

    def remember(
        self,
        user_id: int,
        text: str,
        conversation_id: str = "",
        turn_id: str | None = None,
    ) -> Memory:
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
            user_id=user_id,
            text=text,
            conversation_id=conversation_id or None,
            turn_id=turn_id,
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
    turn = models.ForeignKey(
        "conversations.Turn",
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        help_text=_("The turn in which a model stored it."),
    )
    forgotten_in = models.ForeignKey(
        "conversations.Turn",
        models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="+",
        help_text=_("The turn in which a model forgot it."),
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

    def forget(self, turn_id: str | None = None) -> None:
        """Hide it from its owner and from models; retention deletes the row. The owner
        can restore what a model forgot in a turn."""
        self.deleted_at, self.forgotten_in_id = timezone.now(), turn_id
        self.save(update_fields=["deleted_at", "forgotten_in"])


def forget(user_id: int, pk: int, turn_id: str | None = None) -> bool:
    """False where the user has no such memory."""
    found: Any = Memory.objects.of(user_id).filter(pk=pk).first()
    if found is not None:
        found.forget(turn_id)
        record_event("content.delete", target=found, subject=user_id)
    return found is not None


def change(user_id: int, pk: int, text: str) -> bool:
    """Replace the text of a memory. False where the user has no such memory. Raises
    UnusableText."""
    text = " ".join(text.replace("\0", "").split())
    if not 0 < len(text) <= MAX_TEXT:
        raise UnusableText
    rows = Memory.objects.of(user_id).filter(pk=pk)
    return bool(rows.update(text=text, updated_at=timezone.now()))


def restore(user_id: int, pk: int) -> bool:
    """Undo that a model forgot it. False where the user has no such memory. Raises
    TooManyMemories."""
    rows = Memory.objects.filter(user_id=user_id, pk=pk)
    gone = rows.filter(deleted_at__isnull=False, forgotten_in__isnull=False)
    if not gone.exists():
        return False
    if Memory.objects.of(user_id).count() >= MAX_COUNT:
        raise TooManyMemories
    return bool(gone.update(deleted_at=None, forgotten_in=None))


def undo(user_id: int, pk: int, turn_id: str) -> bool:
    """Undo what a model did with a memory in this turn. False if it did nothing, or if
    that was undone before. Raises TooManyMemories."""
    found = Memory.objects.changed_in(user_id, [turn_id]).filter(pk=pk).first()
    if found is None:
        return False
    return restore(user_id, pk) if found.deleted_at else forget(user_id, pk)
