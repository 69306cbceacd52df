"""Admin of the kinds of tools that requests may declare, and for whom."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from tools.models.declared_tool import DeclaredTool


class DeclaredToolForm(forms.ModelForm):
    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        wants_groups = cleaned.get("allowed_for") == DeclaredTool.AllowedFor.GROUPS
        if wants_groups and not cleaned.get("groups"):
            self.add_error("groups", _("Choose at least one group."))
        if not wants_groups and cleaned.get("groups"):
            self.add_error(
                "groups", _("Remove the groups, or choose “the groups below”.")
            )
        return cleaned


@admin.register(DeclaredTool)
class DeclaredToolAdmin(admin.ModelAdmin):
    form = DeclaredToolForm
    list_display = ["__str__", "kind", "allowed_for", "group_names"]
    list_filter = ["allowed_for", "groups"]
    fields = ["kind", "allowed_for", "groups"]
    readonly_fields = ["kind"]
    filter_horizontal = ["groups"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[DeclaredTool]:
        rows: QuerySet[DeclaredTool] = super().get_queryset(request)
        return rows.prefetch_related("groups")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # the code knows the kinds

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display(description=_("groups"))
    def group_names(self, row: DeclaredTool) -> str:
        return ", ".join(group.name for group in row.groups.all()) or "–"
