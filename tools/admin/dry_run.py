"""Admin page that runs a tool once, without a model."""

from __future__ import annotations

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from tools.admin.formatting import display_parts, format_json
from tools.execution.dry_run import DryRun, dry_run
from tools.forms import DryRunForm, get_form_data
from tools.json_schema.examples import example_of
from tools.models import Tool
from tools.runtime_tool import RuntimeTool


class DryRunAdmin(admin.ModelAdmin):
    """Admin page on which staff call a tool and see its outcome."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.dry_run_view)
        return [
            path("<int:pk>/dry-run/", view, name="tools_tool_dry_run"),
            *super().get_urls(),
        ]

    def has_dry_run_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("tools.dry_run_tool")

    def dry_run_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self.get_queryset(request).filter(pk=pk).first()
        if not self.has_dry_run_permission(request):
            raise PermissionDenied
        if row is None or (tool := row.build_tool()) is None:
            raise Http404
        example = format_json(example_of(tool.parameters))
        first = {"username": request.user.get_username(), "arguments": example}
        form = DryRunForm(
            *get_form_data(request), initial=first, tool=row, tester=request.user
        )
        done = self._dry_run(request, row, tool, form) if form.is_valid() else None
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Dry run of %(tool)s") % {"tool": row},
            "row": row,
            "tool": tool,
            "form": form,
            "done": done,
            "output": display_parts(done.outcome.output) if done else [],
            "accepted": done.outcome.accepted if done else None,
        }
        return TemplateResponse(request, "admin/tools/tool/dry_run.html", context)

    def _dry_run(
        self,
        request: HttpRequest,
        row: Tool,
        tool: RuntimeTool,
        form: DryRunForm,
    ) -> DryRun:
        user = form.cleaned_data["username"]
        result = dry_run(tool, form.cleaned_data["arguments"], user.pk, request.user.pk)
        outcome = result.outcome
        # Not the name, which an erasure of the user would have to find.
        text = f"Dry run as user {user.pk}: {outcome.state}, {outcome.seconds:.2f} s."
        self.log_change(request, row, text)
        return result
