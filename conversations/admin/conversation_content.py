"""Base of the admin of rows with users' content: viewing them is logged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin.models import LogEntry
from django.db.models import QuerySet
from django.http import HttpRequest

from llm.admin import LargeTableAdmin

INSPECT = "conversations.inspect_turn"
EDIT = "conversations.edit_items"


class ConversationContentAdmin(LargeTableAdmin):
    """Base of the admin classes for conversation content.

    Staff see their own content, and all content with `inspect_turn`. With `edit_items`
    they may correct what they see. Nothing is added by hand; deleting needs Django's
    own permission.
    """

    owner = ""  # lookup path to the user who owns the row

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        if request.user.has_perm(INSPECT):
            return rows
        return rows.filter(**{self.owner: request.user.pk})

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        special = request.user.has_perm(INSPECT) or request.user.has_perm(EDIT)
        return special or super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> LogEntry:
        entry: LogEntry = super().log_change(request, obj, message)
        _name_by_id([entry])
        return entry

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        entries = super().log_deletions(request, queryset)
        _name_by_id(entries)
        return entries


def _name_by_id(entries: Iterable[LogEntry]) -> None:
    """Log entries outlive redacted content, and the default `object_repr` may be a
    title."""
    for entry in entries:
        entry.object_repr = str(entry.object_id)
        entry.save(update_fields=["object_repr"])
