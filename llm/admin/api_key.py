from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from llm.admin.bases import SecretFormAdmin
from llm.forms import ApiKeyForm
from llm.models import ApiKey


@admin.register(ApiKey)
class ApiKeyAdmin(SecretFormAdmin):
    form = ApiKeyForm
    list_display = [
        "label",
        "provider",
        "hint",
        "state",
        "weight",
        "rest_until",
        "last_used_at",
        "last_error",
    ]
    list_filter = ["state", "provider"]
    list_select_related = ["provider"]
    search_fields = ["label", "hint", "provider__name"]
    readonly_fields = ["hint", "last_used_at", "last_error", "created_at"]
    fieldsets = [
        (None, {"fields": ["provider", "label", "secret", "hint"]}),
        (_("Use"), {"fields": ["state", "rest_until", "weight"]}),
        (_("Seen"), {"fields": ["last_used_at", "last_error", "created_at"]}),
    ]
