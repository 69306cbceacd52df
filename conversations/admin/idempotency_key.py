from __future__ import annotations

from django.contrib import admin

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
    ordering = ["-id"]
    search_fields = ["=key", "=turn__id", "=user__username"]
    raw_id_fields = ["user", "turn"]
