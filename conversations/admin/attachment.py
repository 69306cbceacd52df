"""Admin of uploaded files, without their content."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from conversations.admin.conversation_content import ConversationContentAdmin
from conversations.models import (
    Attachment,
)


@admin.register(Attachment)
class AttachmentAdmin(ConversationContentAdmin):
    owner = "conversation__owner"
    list_display = ["id", "name", "conversation", "content_type", "size", "created_at"]
    list_filter = ["created_at"]
    list_select_related = ["conversation"]
    date_hierarchy = "created_at"
    ordering = ["-created_at"]
    search_fields = ["=id", "name", "=conversation__id"]
    search_help_text = _("The id of a file or a conversation, or words of its name.")
    # The file itself is not listed, as MEDIA_ROOT is not served.
    fields = ["id", "name", "conversation", "content_type", "size", "created_at"]
    raw_id_fields = ["conversation"]
