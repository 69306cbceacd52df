"""Admin of idempotency keys, read-only."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from conversations.admin.conversation_content import ConversationContentAdmin
from conversations.models import (
    IdempotencyKey,
)


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(ConversationContentAdmin):
    owner = "user"
    list_display = ["key", "user", "turn", "created_at"]
    list_filter = ["created_at"]
    list_select_related = ["user", "turn"]
    date_hierarchy = "created_at"
    ordering = ["-created_at"]
    search_fields = ["=turn__id", "=user__username"]
    search_help_text = _("The id of a turn, or a user's name.")
    raw_id_fields = ["user", "turn"]
