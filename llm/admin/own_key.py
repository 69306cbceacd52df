"""Admin of the API keys that users have entered for themselves."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from llm.admin.bases import ReadOnlyAdmin
from llm.models import OwnKey


@admin.register(OwnKey)
class OwnKeyAdmin(ReadOnlyAdmin):
    """Staff see whose keys there are, and may delete them."""

    list_display = [
        "owner",
        "provider",
        "hint",
        "state",
        "last_used_at",
        "last_error",
    ]
    list_filter = ["provider", "state"]
    list_select_related = ["provider", "owner"]
    search_fields = ["owner__username"]
    fields = [
        "owner",
        "provider",
        "hint",
        "state",
        "state_reason",
        "last_used_at",
        "last_error",
        "created_at",
    ]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm("llm.delete_ownkey")
