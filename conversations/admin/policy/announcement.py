"""Admin of announcements."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from conversations.models import Announcement


@admin.register(Announcement)
class AnnouncementAdmin(admin.ModelAdmin):
    list_display = ["__str__", "level", "starts_at", "ends_at", "times_dismissed"]
    list_filter = ["level", "groups"]
    search_fields = ["text"]
    filter_horizontal = ["groups"]
    fields = ["text", "level", "starts_at", "ends_at", "groups", "dismissible"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Announcement]:
        rows: QuerySet[Announcement] = super().get_queryset(request)
        return rows.annotate(dismissal_count=Count("dismissals"))

    @admin.display(description=_("dismissed"), ordering="dismissal_count")
    def times_dismissed(self, row: Any) -> int:
        return int(row.dismissal_count)

    def save_model(
        self, request: HttpRequest, obj: Announcement, form: Any, change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        if change and {"text", "level"} & set(form.changed_data):
            obj.dismissals.all().delete()
