"""Admin page that imports operations of an OpenAPI document as HTTP tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from llm.forms.error_report_filter import hide_secrets
from tools.forms import DocumentForm, OperationsForm, get_form_data
from tools.http.openapi import OpenApiOperation
from tools.models import HttpTool, ToolVersion
from tools.models.tool_version import MAX_NOTE


class ImportAdmin(admin.ModelAdmin):
    """Admin pages that import tools from an OpenAPI document."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.import_view)
        return [
            path("import-openapi/", view, name="tools_tool_import"),
            *super().get_urls(),
        ]

    def import_view(self, request: HttpRequest) -> HttpResponse:
        """Read the document in a first step and import chosen operations in a
        second."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        hide_secrets(request)
        form = DocumentForm(*get_form_data(request))
        if not form.is_valid():
            return self._import_page(request, form=form)
        picked = "_import" in request.POST
        initial = {name: form.cleaned_data[name] for name in ("document", "base_url")}
        choice = OperationsForm(
            request.POST if picked else None, initial=initial, found=form.operations()
        )
        if picked and choice.is_valid():
            self._import(request, choice)
            return redirect(f"{self.admin_site.name}:tools_tool_changelist")
        return self._import_page(request, choice=choice)

    def _import_page(self, request: HttpRequest, **forms: Any) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Import from an OpenAPI document"),
            **forms,
        }
        return TemplateResponse(request, "admin/tools/tool/import.html", context)

    def _import(self, request: HttpRequest, choice: OperationsForm) -> None:
        imported = 0
        for operation in choice.cleaned_data["operations"]:
            imported += self._import_one(request, operation, choice.cleaned_data)
        text = ngettext(
            "%d tool imported. It is switched off: review it, then enable it.",
            "%d tools imported. They are switched off: review them, then enable them.",
            imported,
        )
        if imported:
            self.message_user(request, text % imported, messages.SUCCESS)

    def _import_one(
        self,
        request: HttpRequest,
        operation: OpenApiOperation,
        options: Mapping[str, Any],
    ) -> bool:
        try:
            row = HttpTool.objects.import_operation(
                operation,
                secret_headers=options["secret"],
                networks=options["networks"],
            )
        except ValidationError as exc:
            text = f"{operation.key}: {' '.join(exc.messages)}"
            self.message_user(request, text, messages.ERROR)
            return False
        self.log_addition(request, row, f"Imported: {operation.key}.")
        note = f"Imported: {operation.key}"[:MAX_NOTE]
        ToolVersion.objects.record(row, request.user, note)
        return True
