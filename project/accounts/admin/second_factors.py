"""Admin of second factors: without their secrets. Deleting one resets it for a person
who lost the phone or key."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.http import HttpRequest

from llm.admin.bases import ReadOnlyAdmin

admin.site.unregister(Authenticator)  # of django-allauth: its form has the secret


@admin.register(Authenticator)
class SecondFactorAdmin(ReadOnlyAdmin):
    list_display = ["user", "type", "created_at", "last_used_at"]
    list_filter = ["type"]
    list_select_related = ["user"]
    search_fields = ["=user__username"]
    fields = ["user", "type", "created_at", "last_used_at"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return admin.ModelAdmin.has_delete_permission(self, request, obj)
