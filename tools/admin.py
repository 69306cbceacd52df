from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from tools import registry
from tools.models import Tool


@admin.register(Tool)
class ToolAdmin(admin.ModelAdmin):
    list_display = [
        "name",
        "label_used",
        "kind",
        "enabled",
        "has_code",
        "timeout_used",
        "replay_used",
        "group_names",
    ]
    list_filter = ["enabled", "is_missing", "kind", "groups"]
    search_fields = ["name", "label", "description"]
    actions = ["enable", "disable"]
    filter_horizontal = ["groups"]
    fieldsets = [
        (None, {"fields": ["name", "kind", "enabled", "groups"]}),
        (
            _("Instead of the code's own words"),
            {"fields": ["label", "description", "timeout", "replay"]},
        ),
        (_("What the model reads"), {"fields": ["description_used", "schema"]}),
        (_("Code"), {"fields": ["source", "has_code", "created_at"]}),
    ]
    readonly_fields = [
        "name",
        "kind",
        "description_used",
        "schema",
        "source",
        "has_code",
        "created_at",
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tool]:
        rows: QuerySet[Tool] = super().get_queryset(request)
        return rows.prefetch_related("groups")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is not None and not obj.is_missing:
            return False
        return super().has_delete_permission(request, obj)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)  # a tool with code would come again
        return actions

    # Actions

    @admin.action(description=_("Enable the selected tools"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        self._switch(request, queryset, enabled=True)

    @admin.action(description=_("Disable the selected tools"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Tool]) -> None:
        self._switch(request, queryset, enabled=False)

    def _switch(
        self, request: HttpRequest, queryset: QuerySet[Tool], *, enabled: bool
    ) -> None:
        rows = list(queryset.exclude(enabled=enabled))
        queryset.model.objects.filter(pk__in=[row.pk for row in rows]).update(
            enabled=enabled
        )
        for row in rows:
            row.enabled = enabled
            self.log_change(request, row, [{"changed": {"fields": ["enabled"]}}])
        text = (
            ngettext("%d tool enabled.", "%d tools enabled.", len(rows))
            if enabled
            else ngettext("%d tool disabled.", "%d tools disabled.", len(rows))
        )
        self.message_user(request, text % len(rows), messages.SUCCESS)

    # Columns and fields

    @admin.display(description=_("label"), ordering="label")
    def label_used(self, row: Tool) -> str:
        used = row.used()
        return used.label if used else row.label

    @admin.display(description=_("code found"), boolean=True, ordering="-is_missing")
    def has_code(self, row: Tool) -> bool:
        return row.offered() is not None

    @admin.display(description=_("timeout"), ordering="timeout")
    def timeout_used(self, row: Tool) -> str:
        used = row.used()
        seconds = used.timeout if used else row.timeout
        return f"{settings.TOOL_TIMEOUT if seconds is None else seconds:g} s"

    @admin.display(description=_("replay"), ordering="replay")
    def replay_used(self, row: Tool) -> str:
        used = row.used()
        return used.replay if used else row.replay

    @admin.display(description=_("groups"))
    def group_names(self, row: Tool) -> str:
        names = ", ".join(group.name for group in row.groups.all())
        return names or str(_("everybody"))

    @admin.display(description=_("description"))
    def description_used(self, row: Tool) -> str:
        return _shown(row, lambda tool: tool.description)

    @admin.display(description=_("parameters"))
    def schema(self, row: Tool) -> str:
        return _shown(row, lambda tool: _pretty(tool.parameters))

    @admin.display(description=_("source"))
    def source(self, row: Tool) -> str:
        return used.source if (used := row.used()) else str(_("The code is gone."))


def _shown(row: Tool, text: Callable[[registry.Tool], str]) -> str:
    used = row.used()
    return format_html("<pre>{}</pre>", text(used)) if used else "-"


def _pretty(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False, default=dict)
