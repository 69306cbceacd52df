from __future__ import annotations

from django.db import models

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
    name = models.CharField(max_length=255)
    content_type = models.CharField(max_length=100)
    size = models.PositiveBigIntegerField()
    file = models.FileField(upload_to="attachments/%Y/%m/")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name
