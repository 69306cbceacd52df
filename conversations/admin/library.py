"""Admin of folders, tags and imports, without their texts."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from conversations.admin.conversation_content import ConversationContentAdmin
from conversations.models import ConversationImport, Folder, Tag


@admin.register(Folder)
class FolderAdmin(ConversationContentAdmin):
    owner = "owner"
    ordering = ["-pk"]
    list_display = ["name", "owner", "language_model", "created_at"]
    list_filter = ["created_at"]
    list_select_related = ["owner", "language_model"]
    search_fields = ["=owner__username", "name"]
    search_help_text = _("A user's name, or words of the folder's name.")
    fields = ["owner", "name", "instructions", "language_model", "created_at"]


@admin.register(Tag)
class TagAdmin(ConversationContentAdmin):
    owner = "owner"
    ordering = ["-pk"]
    list_display = ["name", "owner"]
    list_select_related = ["owner"]
    search_fields = ["=owner__username", "name"]
    fields = ["owner", "name"]


@admin.register(ConversationImport)
class ConversationImportAdmin(ConversationContentAdmin):
    owner = "owner"
    list_display = [
        "id",
        "owner",
        "format",
        "state",
        "size",
        "imported",
        "repeated",
        "skipped",
        "created_at",
        "finished_at",
    ]
    list_filter = ["state", "format", "created_at"]
    list_select_related = ["owner"]
    search_fields = ["=owner__username", "=id"]
    fields = [
        "id",
        "owner",
        "format",
        "state",
        "size",
        "imported",
        "repeated",
        "skipped",
        "created_at",
        "finished_at",
        "name",
        "error",
    ]
