"""Admin of logged requests, read-only, for staff who may view them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from conversations.models import LoggedRequest
from llm.admin import LargeTableAdmin


@admin.register(LoggedRequest)
class LoggedRequestAdmin(LargeTableAdmin):
    list_display = ["request_id", "created_at", "token", "path", "model", "status"]
    list_filter = ["created_at", "status"]
    list_select_related = ["token"]
    date_hierarchy = "created_at"
    ordering = ["-pk"]
    search_fields = ["=request_id", "=client_request_id", "=token__label"]
    search_help_text = _("A request's id, or the label of a token.")
    fields = [
        "token",
        "created_at",
        "method",
        "path",
        "model",
        "status",
        "seconds",
        "request_id",
        "client_request_id",
        "request_size",
        "response_size",
        "request_text",
        "response_text",
    ]
    readonly_fields = ["request_text", "response_text"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        return rows.filter(pk__in=LoggedRequest.objects.fresh().values("pk")).defer(
            "request_body", "response_body"
        )

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
