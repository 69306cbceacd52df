"""Row of an uploaded file."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

from conversations.models.conversation import Conversation
from llm.wire.items import new_id


def attachment_id() -> str:
    return new_id("file")


class Attachment(models.Model):
    """A file that belongs to a conversation; items refer to it by id."""

    id = models.CharField(
        primary_key=True, max_length=64, default=attachment_id, editable=False
    )
    conversation = models.ForeignKey(
        Conversation, models.CASCADE, related_name="attachments"
    )
    uploaded_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text=_("Participant who sent it; empty for the conversation's owner."),
    )
    name = models.CharField(max_length=255)
    content_type = models.CharField(max_length=100)
    size = models.PositiveBigIntegerField()
    file = models.FileField(upload_to="attachments/%Y/%m/")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            # A copied conversation has rows of its own for the same stored files.
            models.Index(fields=["file"], name="conversations_attachment_file"),
            models.Index(fields=["created_at"], name="conversations_attachment_new"),
        ]

    def __str__(self) -> str:
        return self.name
