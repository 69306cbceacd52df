"""Admin of when users last looked at conversations, read-only."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from conversations.admin.conversation_content import ConversationContentAdmin
from conversations.models import LastSeen


@admin.register(LastSeen)
class LastSeenAdmin(ConversationContentAdmin):
    owner = "user"
    list_display = ["conversation", "user", "at"]
    list_filter = ["at"]
    list_select_related = ["user", "conversation"]
    ordering = ["-pk"]
    search_fields = ["=user__username", "=conversation__id"]
    search_help_text = _("A user's name, or the id of a conversation.")
    raw_id_fields = ["user", "conversation"]
