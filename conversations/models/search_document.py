"""Model of a message in the full-text index."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from conversations.models.conversation import Conversation
from conversations.models.item import Item
from conversations.models.turn import Turn


class SearchDocument(models.Model):
    """Owner, conversation and turn of a message in the full-text index.

    Its tokens are stored separately: on SQLite in the FTS5 table
    `conversations_search`, whose `rowid` is the item's id; on PostgreSQL in a column
    `tokens` of type tsvector, which is not a field of this model. A trigger deletes the
    FTS5 row with this one; a migration that alters this table on SQLite has to create
    the trigger again.
    """

    item = models.OneToOneField(
        Item, models.CASCADE, primary_key=True, related_name="+"
    )
    turn = models.ForeignKey(Turn, models.CASCADE, related_name="+")
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="+")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="+", db_index=False
    )

    tokens_version = models.SmallIntegerField(
        null=True, help_text="TOKENS_VERSION of its tokens; null for the first."
    )

    class Meta:
        indexes = [
            models.Index(fields=["owner", "item"], name="conversations_search_owner"),
            models.Index(
                fields=["owner", "item"],
                condition=models.Q(tokens_version=None),
                name="conversations_search_outdated",
            ),
        ]

    def __str__(self) -> str:
        return str(self.item_id)
