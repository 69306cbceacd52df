"""Admin pages of a tool's versions: list, compare, restore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from tools.models import Tool, ToolVersion
from tools.models.tool_version import compare_snapshots, take_snapshot

MAX_SHOWN = 200  # newest versions on the page


class VersionsAdmin(admin.ModelAdmin):
    """Records a version after each change; shows, compares and restores versions."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        ours = [
            path(
                "<int:pk>/versions/",
                view(self.versions_view),
                name="tools_tool_versions",
            ),
            path(
                "<int:pk>/versions/<int:number>/restore/",
                view(require_POST(self.restore_view)),
                name="tools_tool_restore",
            ),
        ]
        return [*ours, *super().get_urls()]

    # Recording versions

    def save_model(
        self, request: HttpRequest, obj: Tool, form: Any, change: bool
    ) -> None:
        form.before = take_snapshot(Tool.objects.get(pk=obj.pk)) if change else None
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, *args: Any) -> None:
        super().save_related(request, form, *args)
        ToolVersion.objects.record(form.instance, request.user, before=form.before)

    # Pages

    def versions_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self._row(request, pk)
        versions = list(row.versions.select_related("made_by")[:MAX_SHOWN])
        new = _select_version(request, "new", versions, versions[:1])
        old = _select_version(request, "old", versions, versions[1:2])
        compared = compare_snapshots(old.snapshot, new.snapshot) if old and new else []
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Versions of %(tool)s") % {"tool": row},
            "row": row,
            "versions": versions,
            "old": old,
            "new": new,
            "differences": compared,
            "may_restore": self.has_change_permission(request, row),
        }
        return TemplateResponse(request, "admin/tools/tool/versions.html", context)

    def restore_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        row = self._row(request, pk)
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        version = get_object_or_404(row.versions, number=number)
        try:
            gone = version.restore(request.user)
        except ValidationError as exc:
            self.message_user(request, " ".join(exc.messages), messages.ERROR)
        else:
            self.log_change(request, row, f"Version {number} restored.")
            text = _("Version %d is restored.") % number
            self.message_user(request, text, messages.SUCCESS)
            for name in gone:
                text = _("The group %r no longer exists and was left out.") % name
                self.message_user(request, text, messages.WARNING)
        return redirect("admin:tools_tool_versions", row.pk)

    def _row(self, request: HttpRequest, pk: int) -> Tool:
        row: Tool | None = self.get_queryset(request).filter(pk=pk).first()
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404
        return row


def _select_version(
    request: HttpRequest,
    which: str,
    versions: Sequence[ToolVersion],
    default: Sequence[ToolVersion],
) -> ToolVersion | None:
    wanted_number = request.GET.get(which, "")
    named = [version for version in versions if str(version.number) == wanted_number]
    return next(iter([*named, *default]), None)
