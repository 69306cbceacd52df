"""Admin of what models remember about users."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from conversations.admin.conversation_content import ConversationContentAdmin
from conversations.models.memory import Memory


@admin.register(Memory)
class MemoryAdmin(ConversationContentAdmin):
    owner = "user"
    list_display = ["__str__", "user", "conversation", "created_at", "deleted_at"]
    list_filter = ["created_at", ("deleted_at", admin.EmptyFieldListFilter)]
    list_select_related = ["user", "conversation"]
    ordering = ["-pk"]
    search_fields = ["=user__username", "=conversation__id"]
    search_help_text = _("A user's name, or the id of a conversation.")
    fields = ["user", "text", "conversation", "created_at", "updated_at", "deleted_at"]
