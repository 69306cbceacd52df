"""Admin of tools: enable, approval, groups, limits and definition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from llm.admin import SecretFormAdmin, Use, UsedByAdmin
from tools.admin.dry_run import DryRunAdmin
from tools.admin.formatting import format_json
from tools.admin.http_tool import HttpToolInline
from tools.admin.openapi_import import ImportAdmin
from tools.admin.tool_actions import ToolActionsMixin
from tools.admin.versions import VersionedAdmin
from tools.conf import settings
from tools.forms import ToolForm
from tools.hosted.definitions import PRESETS
from tools.json_schema.arguments import why_invalid
from tools.json_schema.provider_support import find_refusals, hosts_of
from tools.json_schema.sent_schemas import find_sent_schemas
from tools.models import HttpTool, McpTool, Tool, ToolUse, ToolVersion
from tools.models.tool import RELATED_ROWS
from tools.models.tool_version import compare_snapshots
from tools.python import sandbox
from tools.python.isolated_call import IsolatedCall
from tools.runtime_tool import RuntimeTool
from tools.text_diff import FieldDifference

MAX_NAMED = 20  # tools in one message


class RunsWithoutApprovalFilter(admin.SimpleListFilter):
    title = _("side effects")
    parameter_name = "unasked"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("1", _("runs without approval (existing tool)"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        return queryset.awaiting_review() if self.value() else queryset


@admin.register(Tool)
class ToolAdmin(
    ToolActionsMixin,
    UsedByAdmin,
    DryRunAdmin,
    ImportAdmin,
    VersionedAdmin,
    SecretFormAdmin,
):
    form = ToolForm
    parts = (HttpTool, McpTool, ToolVersion)
    version_model = ToolVersion
    restore_note = _(
        "Secret headers stay as they are, and so does whether the tool is enabled."
    )

    class Media:
        css = {"all": ["css/tool-admin.css"]}

    change_form_template = "admin/tools/tool/change_form.html"
    change_list_template = "admin/tools/tool/change_list.html"
    list_per_page = 50  # of many columns
    list_display = [
        "name",
        "label_used",
        "kind_and_difference",
        "enabled",
        "has_code",
        "timeout_used",
        "replay_used",
        "waits",
        "approval_used",
        "risk_used",
        "group_names",
    ]
    list_filter = [
        RunsWithoutApprovalFilter,
        "enabled",
        "is_missing",
        "kind",
        "mcp__difference",
        "approval",
        "groups",
    ]
    search_fields = ["name", "label", "description"]
    actions = ["enable", "disable", "set_approval", "change_groups"]
    filter_horizontal = ["groups"]

    def compare(
        self, before: dict[str, Any], after: dict[str, Any]
    ) -> list[FieldDifference]:
        return compare_snapshots(before, after)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tool]:
        rows: QuerySet[Tool] = super().get_queryset(request)
        return rows.select_related(*RELATED_ROWS).prefetch_related("groups")

    def secrets_not_sent(self, obj: Tool) -> list[str]:
        http = HttpTool.objects.filter(tool=obj).first()
        return http.secrets_not_sent if http else []

    def find_uses(self, rows: Sequence[Tool]) -> list[Use]:
        """The rows that refer to these tools, and how often models called the tools."""
        names = [row.name for row in rows]
        daily = ToolUse.objects.filter(span=ToolUse.Span.DAY, name__in=names)
        calls = daily.aggregate(sum=Sum("calls"))["sum"]
        counted = [Use(str(_("Tool calls")), calls, is_sum=True)] if calls else []
        return [*super().find_uses(rows), *counted]

    def get_list_display(self, request: HttpRequest) -> Any:
        """What differs at an MCP server is a link for who may see servers."""
        if request.user.has_perm("tools.view_mcpserver"):
            return self.list_display
        plain = {"kind_and_difference": "plain_difference"}
        return [plain.get(str(name), name) for name in self.list_display]

    # The page, by kind

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.kind = _kind(request, obj)
        return form

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        preset_name = request.GET.get("preset")
        for preset in PRESETS:
            if preset.name == preset_name and _kind(request, None) == Tool.Kind.HOSTED:
                return {
                    "name": preset.name,
                    "label": preset.label,
                    "definition": preset.definition,
                }
        return super().get_changeform_initial_data(request)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return _FIELDSETS[_kind(request, obj)]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if _belongs_to_server(obj):
            return ["name", "kind", "definition", "created_at"]
        if not _has_code(obj):
            return ["kind", "created_at"]
        return [
            "name",
            "kind",
            "description_used",
            "schema",
            "source",
            "isolation",
            "has_code",
            "created_at",
        ]

    def get_inlines(self, request: HttpRequest, obj: Any = None) -> Any:
        return [HttpToolInline] if _kind(request, obj) == Tool.Kind.HTTP else []

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if (_has_code(obj) and not obj.is_missing) or _belongs_to_server(obj):
            return False
        return super().has_delete_permission(request, obj)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        if request.method == "GET":
            self._warn_about_unreviewed(request)
        may_add = {"may_add": self.has_add_permission(request)}
        return super().changelist_view(request, {**(extra_context or {}), **may_add})

    def _warn_about_unreviewed(self, request: HttpRequest) -> None:
        names = list(Tool.objects.awaiting_review().values_list("name", flat=True))
        if not names:
            return
        text = ngettext(
            "%(count)d existing tool has side effects and runs without approval:"
            " %(names)s. Choose its approval policy.",
            "%(count)d existing tools have side effects and run without approval:"
            " %(names)s. Choose the approval policy of each.",
            len(names),
        )
        shown = ", ".join(names[:MAX_NAMED]) + (" …" if len(names) > MAX_NAMED else "")
        params = {"count": len(names), "names": shown}
        self.message_user(request, text % params, messages.WARNING)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row: Tool | None = context["original"]
        used = row.build_tool() if row else None
        context["may_dry_run"] = used and self.has_dry_run_permission(request)
        context |= _schema_context(used.parameters) if used else {}
        if _kind(request, row) == Tool.Kind.HOSTED:
            context |= _hosting_context(row)
        return super().render_change_form(request, context, *args, **kwargs)

    # Actions

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)  # `sync` would recreate tools with code
        return actions

    # Columns and fields

    @admin.display(description=_("label"), ordering="label")
    def label_used(self, row: Tool) -> str:
        used = row.build_tool()
        return used.label if used else row.label

    @admin.display(description=_("kind"), ordering="kind")
    def plain_difference(self, row: Tool) -> str:
        mcp = getattr(row, "mcp", None)
        if mcp is None or not mcp.difference:
            return row.get_kind_display()
        return f"{row.get_kind_display()}: {mcp.get_difference_display()}"

    @admin.display(description=_("kind"), ordering="kind")
    def kind_and_difference(self, row: Tool) -> str:
        """The kind; for an MCP tool that is held back also why, with a link to review
        it."""
        mcp = getattr(row, "mcp", None)
        if mcp is None or not mcp.difference:
            return row.get_kind_display()
        page = reverse("admin:tools_mcpserver_tools", args=[mcp.server_id])
        difference = mcp.get_difference_display()
        link = '{}: <a href="{}" class="tool-bad">{}</a>'
        return format_html(link, row.get_kind_display(), page, difference)

    @admin.display(description=_("ready"), boolean=True, ordering="-is_missing")
    def has_code(self, row: Tool) -> bool:
        if row.kind == Tool.Kind.HOSTED:
            return bool(row.build_hosted_definition())
        return row.build_base_tool() is not None

    @admin.display(description=_("timeout"), ordering="timeout")
    def timeout_used(self, row: Tool) -> str:
        used = row.build_tool()
        if row.kind == Tool.Kind.HOSTED:
            return "–"
        if used and not used.blocking and used.timeout is None:
            return f"{settings.BACKGROUND_TOOL_TIMEOUT:g} s"
        seconds = used.timeout if used else row.timeout
        return f"{settings.TOOL_TIMEOUT if seconds is None else seconds:g} s"

    @admin.display(description=_("replay"), ordering="replay")
    def replay_used(self, row: Tool) -> str:
        used = row.build_tool()
        return used.replay if used else row.replay

    @admin.display(description=_("model waits"), boolean=True)
    def waits(self, row: Tool) -> bool | None:
        used = row.build_tool()
        return used.blocking if used else None

    @admin.display(description=_("approval"))
    def approval_used(self, row: Tool) -> str:
        used = row.build_tool()
        if used is None:
            return "–"
        policy = used.approval.policy if used.approval else Tool.Approve.NEVER
        return str(Tool.Approve(policy).label)

    @admin.display(description=_("risk"))
    def risk_used(self, row: Tool) -> str:
        used = row.build_tool()
        return str(Tool.Risk(used.risk_class).label) if used else "–"

    @admin.display(description=_("groups"))
    def group_names(self, row: Tool) -> str:
        names = ", ".join(group.name for group in row.groups.all())
        return names or str(_("everybody"))

    @admin.display(description=_("description"))
    def description_used(self, row: Tool) -> str:
        return _format_pre(row, lambda tool: tool.description)

    @admin.display(description=_("parameters"))
    def schema(self, row: Tool) -> str:
        return _format_pre(row, lambda tool: format_json(tool.parameters))

    @admin.display(description=_("source"))
    def source(self, row: Tool) -> str:
        return (
            used.source
            if (used := row.build_tool())
            else str(_("The code no longer exists."))
        )

    @admin.display(description=_("isolation"))
    def isolation(self, row: Tool) -> str:
        used = row.build_tool()
        if used is None or not isinstance(used.call, IsolatedCall):
            return str(_("none: it does not run in a process of its own"))
        return sandbox.describe()


_GENERAL_FIELDSET = (
    None,
    {"fields": ["name", "kind", "enabled", "only_in_presets", "groups"]},
)
_APPROVAL_FIELDSET = (
    _("Approval"),
    {
        "fields": [
            "approval",
            "approval_rule",
            "approvers",
            "risk",
            "runs_after_untrusted",
        ],
        "description": _(
            "The turn waits until a person approves the call. That person sees the"
            " arguments and can change them. The decision, the person and the time are"
            " recorded."
        ),
    },
)
_CODE_FIELDSETS = [
    _GENERAL_FIELDSET,
    (
        _("Overrides of the code"),
        {
            "fields": [
                "label",
                "description",
                "timeout",
                "calls_per_minute",
                "replay",
                "blocking",
            ]
        },
    ),
    _APPROVAL_FIELDSET,
    (_("What the model receives"), {"fields": ["description_used", "schema"]}),
    (_("Code"), {"fields": ["source", "isolation", "has_code", "created_at"]}),
]
_FIELDSETS: Mapping[str, Any] = {
    Tool.Kind.PYTHON: _CODE_FIELDSETS,
    Tool.Kind.MCP: _CODE_FIELDSETS,
    Tool.Kind.HTTP: [
        _GENERAL_FIELDSET,
        (_("Label and description"), {"fields": ["label", "description"]}),
        (
            _("Execution"),
            {
                "fields": [
                    "timeout",
                    "calls_per_minute",
                    "replay",
                    "blocking",
                    "created_at",
                ]
            },
        ),
        _APPROVAL_FIELDSET,
    ],
    Tool.Kind.HOSTED: [
        _GENERAL_FIELDSET,
        (_("Label"), {"fields": ["label"]}),
        (_("Definition"), {"fields": ["definition", "created_at"]}),
    ],
}


def _kind(request: HttpRequest, row: Tool | None) -> str:
    """The kind of the row, or of the new row that the page adds."""
    if row is not None:
        return row.kind
    hosted = request.GET.get("kind") == Tool.Kind.HOSTED
    return Tool.Kind.HOSTED if hosted else Tool.Kind.HTTP


def _schema_context(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """What the page shows of a tool's schema. An invalid one, which an MCP server may
    list, has a shape that the checks do not expect."""
    if why := why_invalid(parameters):
        return {"why_invalid": why}
    return {
        "refusals": find_refusals(parameters),
        "sent_schemas": find_sent_schemas(parameters),
    }


def _hosting_context(row: Tool | None) -> dict[str, Any]:
    """Template context: the providers that accept the tool, or for a new tool the
    presets with theirs."""
    definition = row.build_hosted_definition() if row else None
    if row:
        return {"hosts": hosts_of(definition) if definition else []}
    presets = []
    for preset in PRESETS:
        hosts = [host.label for host in hosts_of(preset.definition) if not host.why_not]
        presets.append((preset, hosts))
    return {"presets": presets}


def _belongs_to_server(row: Tool | None) -> bool:
    """True for a tool that the row of an MCP server creates and updates."""
    return row is not None and hasattr(row, "mcp_server")


def _has_code(row: Tool | None) -> bool:
    return row is not None and row.kind in (Tool.Kind.PYTHON, Tool.Kind.MCP)


def _format_pre(row: Tool, text: Callable[[RuntimeTool], str]) -> str:
    used = row.build_tool()
    return format_html('<pre tabindex="0">{}</pre>', text(used)) if used else "-"
