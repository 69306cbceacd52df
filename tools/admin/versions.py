"""Admin pages of versions: list, compare, restore; recording of each change."""

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

from tools.text_diff import FieldDifference, diff_fields

MAX_SHOWN = 200  # newest versions on the page


class VersionedAdmin(admin.ModelAdmin):
    """Records a version after each change; shows, compares and restores versions.

    The form may have a field `note`. A version has `number`, `made_by`, `snapshot`,
    `restore(user)` and the static method `take_snapshot(row)`.
    """

    version_model: Any
    restore_note: Any  # what restoring leaves as it is

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path(
                "<int:pk>/versions/",
                view(self.versions_view),
                name=f"{self._url_prefix()}_versions",
            ),
            path(
                "<int:pk>/versions/<int:number>/restore/",
                view(require_POST(self.restore_view)),
                name=f"{self._url_prefix()}_restore",
            ),
        ]
        return [*own, *super().get_urls()]

    # Recording versions

    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: bool
    ) -> None:
        rows = type(obj)._default_manager
        take = self.version_model.take_snapshot
        form.before = take(rows.get(pk=obj.pk)) if change else None
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, *args: Any) -> None:
        super().save_related(request, form, *args)
        note = form.cleaned_data.get("note", "")
        self.version_model.objects.record(
            form.instance, request.user, note, before=form.before
        )

    # Pages

    def versions_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self.find_row(request, pk)
        versions = list(row.versions.select_related("made_by")[:MAX_SHOWN])
        new = _select_version(request, "new", versions, versions[:1])
        old = _select_version(request, "old", versions, versions[1:2])
        compared = self.compare(old.snapshot, new.snapshot) if old and new else []
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Versions of %(row)s") % {"row": row},
            "row": row,
            "versions": versions,
            "old": old,
            "new": new,
            "differences": compared,
            "may_restore": self.has_change_permission(request, row),
            "restore_note": self.restore_note,
        }
        template = "admin/versions.html"
        return TemplateResponse(request, template, context)

    def restore_view(self, request: HttpRequest, pk: int, number: int) -> HttpResponse:
        row = self.find_row(request, pk)
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        version = get_object_or_404(row.versions, number=number)
        try:
            gone = self.restore(request, version)
        except ValidationError as exc:
            self.message_user(request, " ".join(exc.messages), messages.ERROR)
        else:
            self.log_change(request, row, f"Version {number} restored.")
            text = _("Version %d is restored.") % number
            self.message_user(request, text, messages.SUCCESS)
            self.warn_of_gone(request, gone)
        return redirect(f"admin:{self._url_prefix()}_versions", pk)

    def compare(
        self, before: dict[str, Any], after: dict[str, Any]
    ) -> list[FieldDifference]:
        return diff_fields(before, after)

    def restore(self, request: HttpRequest, version: Any) -> list[str]:
        """Raises ValidationError."""
        gone: list[str] = version.restore(request.user)
        return gone

    def warn_of_gone(self, request: HttpRequest, names: Sequence[str]) -> None:
        for name in names:
            text = _("%r no longer exists and was left out.") % name
            self.message_user(request, text, messages.WARNING)

    def _url_prefix(self) -> str:
        return f"{self.opts.app_label}_{self.opts.model_name}"

    def find_row(self, request: HttpRequest, pk: int) -> Any:
        row = self.get_queryset(request).filter(pk=pk).first()
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404
        return row


def _select_version(
    request: HttpRequest,
    which: str,
    versions: Sequence[Any],
    default: Sequence[Any],
) -> Any:
    wanted_number = request.GET.get(which, "")
    named = [version for version in versions if str(version.number) == wanted_number]
    return next(iter([*named, *default]), None)
