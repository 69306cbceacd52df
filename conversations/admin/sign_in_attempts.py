"""Admin of failed and successful sign-ins, read-only."""

from __future__ import annotations

from typing import Any

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib import admin
from django.http import HttpRequest

from llm.admin.bases import ReadOnlyAdmin

_REQUEST_FIELDS = ["username", "ip_address", "user_agent", "path_info"]


@admin.register(AccessAttempt)
class SignInFailuresAdmin(ReadOnlyAdmin):
    """Deleting a row ends the delay of its account and address."""

    list_display = ["attempt_time", *_REQUEST_FIELDS[:3], "failures_since_start"]
    list_filter = ["attempt_time"]
    search_fields = ["=username", "=ip_address"]
    fields = ["attempt_time", *_REQUEST_FIELDS, "failures_since_start"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return admin.ModelAdmin.has_delete_permission(self, request, obj)


@admin.register(AccessLog, AccessFailureLog)
class SignInLogAdmin(ReadOnlyAdmin):
    list_display = ["attempt_time", *_REQUEST_FIELDS[:3]]
    list_filter = ["attempt_time"]
    search_fields = ["=username", "=ip_address"]
    fields = ["attempt_time", *_REQUEST_FIELDS]
