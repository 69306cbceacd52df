"""Admin of MCP servers: connection, sign-in and approval of their tools."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.db.models import Count, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from llm.admin import SecretFormAdmin
from llm.db.secret_rows import why_not_sent
from llm.forms.fields import JSONObjectField, StrictJSONField
from tools.forms import CODE_ATTRIBUTES, SERVER_WIDGETS, SecretHeadersForm
from tools.mcp.admin_actions import McpActionsMixin
from tools.mcp.admin_health import McpHealthAdmin
from tools.mcp.admin_review import McpReviewAdmin
from tools.mcp.admin_sign_in import McpSignInAdmin
from tools.mcp.connection_check import check_connection
from tools.mcp.tool_comparison import ToolComparison
from tools.models.mcp_server import McpServer


class _ToolNamesField(StrictJSONField):
    """A list of names; None is shown as an empty field, not as "null"."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class McpServerForm(SecretHeadersForm):
    class Meta:
        model = McpServer
        fields = [
            "name",
            "label",
            "url",
            "headers",
            "oauth_flow",
            "oauth_client_id",
            "oauth_secret",
            "oauth_issuer",
            "oauth_scope",
            "allowed_tools",
            "networks",
            "timeout",
            "enabled",
            "groups",
            "hosted",
        ]
        field_classes = {"headers": JSONObjectField, "allowed_tools": _ToolNamesField}
        widgets = {
            **SERVER_WIDGETS,
            "allowed_tools": forms.Textarea({"rows": 2, **CODE_ATTRIBUTES}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        row = self.instance
        why = why_not_sent(row.oauth_secret, row.secret_origin("oauth_secret"))
        if why and "oauth_secret" in self.fields:
            warning = format_html('<strong class="tool-bad">{}</strong>', why)
            self.fields["oauth_secret"].help_text = warning


@admin.register(McpServer)
class McpServerAdmin(
    McpActionsMixin, McpReviewAdmin, McpHealthAdmin, McpSignInAdmin, SecretFormAdmin
):
    form = McpServerForm
    change_form_template = "admin/tools/mcpserver/change_form.html"
    list_display = [
        "name",
        "where_with_errors",
        "is_well",
        "to_review",
        "enabled",
        "tool_count",
        "last_success_shown",
        "latency",
        "hosted",
    ]
    list_filter = ["enabled", "hosted", "is_program", "is_missing"]
    search_fields = ["name", "label", "url"]
    actions = ["refresh", "enable", "disable"]

    class Media:
        css = {"all": ["css/tool-admin.css"]}

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.tools_view)
        own = [path("<int:pk>/tools/", view, name="tools_mcpserver_tools")]
        return [*own, *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> QuerySet[McpServer]:
        rows: QuerySet[McpServer] = super().get_queryset(request)
        counted = rows.annotate(approved_count=Count("tools"))
        return counted.select_related("signed_in_by").prefetch_related(
            "tools", "rejections"
        )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        program = obj is not None and obj.is_program
        return _PROGRAM_FIELDSETS if program else _FIELDSETS

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        names = [
            "where",
            "sign_in_status",
            "server_info",
            "error",
            "listed_at",
            "created_at",
        ]
        # The names of the server's tools begin with its name.
        return names if obj is None else ["name", *names]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if obj is not None and obj.is_program and not obj.is_missing:
            return False  # `sync` would create it again
        return super().has_delete_permission(request, obj)

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)  # `delete` has to run for each row
        return actions

    def save_model(
        self, request: HttpRequest, obj: McpServer, form: Any, change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        try:
            with transaction.atomic():
                obj.sync_hosted_tool()
        except ValidationError as exc:
            self.message_user(request, " ".join(exc.messages), messages.ERROR)

    # The tools page: connect, compare, approve

    def tools_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        row = self.get_queryset(request).filter(pk=pk).first()
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404
        if request.method == "POST":
            return self._act(request, row)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Tools of %(server)s") % {"server": row},
            "row": row,
            "comparison": row.comparison,
            "rejected": _rejected_names(row),
            "may_change": self.has_change_permission(request, row),
        }
        return TemplateResponse(request, "admin/tools/mcpserver/tools.html", context)

    def _act(self, request: HttpRequest, row: McpServer) -> HttpResponse:
        if not self.has_change_permission(request, row):
            raise PermissionDenied
        if {"_approve", "_approve_new"} & request.POST.keys():
            self._approve(request, row)
        elif not check_connection(row, request.user):  # the page shows what went wrong
            count = len(row.listing)
            text = ngettext(
                "Connected; it lists %d tool.", "Connected; it lists %d tools.", count
            )
            self.message_user(request, text % count, messages.SUCCESS)
        return redirect(f"{self.admin_site.name}:tools_mcpserver_tools", row.pk)

    def _approve(self, request: HttpRequest, row: McpServer) -> None:
        """Approve tools, unless the listing has changed since the page was shown."""
        if request.POST.get("listed_at") != _stamp(row):
            text = _("The list has changed since you opened the page: review it again.")
            self.message_user(request, text, messages.ERROR)
            return
        names = request.POST.getlist("tool")
        if "_approve_new" in request.POST:
            names = [definition.name for definition in row.comparison.new]
        try:
            row.approve(names, request.user)
        except ValidationError as exc:
            self.message_user(request, " ".join(exc.messages), messages.ERROR)
            return
        self.log_change(request, row, f"Approved: {', '.join(sorted(names))}.")
        success_text = ngettext("%d tool approved.", "%d tools approved.", len(names))
        self.message_user(request, success_text % len(names), messages.SUCCESS)

    # Columns and fields

    @admin.display(description=_("where"))
    def where(self, row: McpServer) -> str:
        return str(_("a program in the settings")) if row.is_program else row.url

    @admin.display(description=_("where"), ordering="url")
    def where_with_errors(self, row: McpServer) -> str:
        """The address, with the errors of the server."""
        gone = McpServer._meta.get_field("is_missing").help_text
        wrong = row.error or (gone if row.is_missing else "")
        problems = [(each,) for each in [wrong, *row.secrets_not_sent] if each]
        small = format_html_join("", '<small class="tool-bad">{}</small>', problems)
        return format_html("{}{}", self.where(row), small)

    @admin.display(description=_("approved tools"), ordering="approved_count")
    def tool_count(self, row: Any) -> int:
        return int(row.approved_count)

    @admin.display(description=_("to review"))
    def to_review(self, row: McpServer) -> str:
        """The numbers of changed, removed and new tools, linked to the tools page."""
        found = row.to_review
        counts = [
            (found.changed, _("%d changed, held back"), "tool-bad"),
            (found.gone, _("%d removed"), "tool-bad"),
            (found.new, _("%d new"), ""),
        ]
        page = reverse("admin:tools_mcpserver_tools", args=[row.pk])
        links = [(page, css, text % len(those)) for those, text, css in counts if those]
        link = '<a href="{}" class="{}">{}</a>'
        return format_html_join(", ", link, links) or "–"

    @admin.display(description=_("works"), boolean=True, ordering="error")
    def is_well(self, row: McpServer) -> bool | None:
        if row.error or row.is_missing:
            return False
        return True if row.listed_at else None

    @admin.display(description=_("server information"))
    def server_info(self, row: McpServer) -> str:
        about = row.about
        if not about:
            return "-"
        return f"{about['name']} {about['version']}, MCP {about['protocol']}".strip()


def _rejected_names(row: McpServer) -> set[str]:
    """Tools whose listed definition staff have rejected."""

    def names(found: ToolComparison) -> set[str]:
        changed = (each.listed.name for each in found.changed)
        return {*changed, *(each.name for each in found.new)}

    return names(row.comparison) - names(row.to_review)


def _stamp(row: McpServer) -> str:
    return row.listed_at.isoformat() if row.listed_at else ""


_USE = (_("Use"), {"fields": ["groups", "allowed_tools", "timeout", "hosted"]})
_STATE = (_("State"), {"fields": ["server_info", "listed_at", "error", "created_at"]})
_FIELDSETS = [
    (None, {"fields": ["name", "label", "url", "enabled"]}),
    (_("Headers"), {"fields": ["secret", "headers"]}),
    (
        _("OAuth"),
        {
            "fields": [
                "oauth_flow",
                "oauth_client_id",
                "oauth_secret",
                "oauth_issuer",
                "oauth_scope",
                "sign_in_status",
            ]
        },
    ),
    _USE,
    (_("Network access"), {"fields": ["networks"]}),
    _STATE,
]
_PROGRAM_FIELDSETS = [
    (None, {"fields": ["name", "label", "where", "enabled"]}),
    (_("Use"), {"fields": ["groups", "allowed_tools", "timeout"]}),
    _STATE,
]
