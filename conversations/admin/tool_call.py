"""Admin of tool calls and of questions to users, with the statistics of tools."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from conversations.admin.conversation_content import (
    INSPECT,
    ConversationContentAdmin,
)
from conversations.admin.user_grants import GrantsAdmin
from conversations.models import Item, Question, ToolCall
from conversations.staff.id_search import MAX_FOUND, find_turns
from conversations.staff.tool_statistics import PERIODS, report, report_all
from tools.models import Tool
from tools.text_diff import diff_lines

USUAL_PERIOD = "7d"

_PERIOD_LABELS = {
    "24h": _("24 hours"),
    "7d": _("7 days"),
    "30d": _("30 days"),
}


class _ToolFilter(admin.SimpleListFilter):
    """Lists names from the tools' rows: a DISTINCT over millions of calls is slow."""

    title = _("tool")
    parameter_name = "tool"
    path = "name"

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, str]]:
        names = Tool.objects.exclude(kind=Tool.Kind.HOSTED).values_list(
            "name", flat=True
        )
        return [(name, name) for name in names.order_by("name")]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> QuerySet[Any] | None:
        return queryset.filter(**{self.path: self.value()}) if self.value() else None


class _KindFilter(admin.SimpleListFilter):
    title = _("kind of tool")
    parameter_name = "kind_of_tool"
    path = "name__in"

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, Any]]:
        return [
            (kind.value, kind.label)
            for kind in (Tool.Kind.PYTHON, Tool.Kind.HTTP, Tool.Kind.MCP)
        ]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> QuerySet[Any] | None:
        if not self.value():
            return None
        names = Tool.objects.filter(kind=self.value()).values_list("name", flat=True)
        return queryset.filter(**{self.path: list(names)})


class _LateFilter(admin.SimpleListFilter):
    """`IS NOT NULL`, as the partial index has it; Django's own filter negates."""

    title = _("result")
    parameter_name = "late"

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, Any]]:
        return [("1", _("after its turn had ended"))]

    def queryset(
        self, request: HttpRequest, queryset: QuerySet[Any]
    ) -> QuerySet[Any] | None:
        return queryset.filter(late_at__isnull=False) if self.value() else None


class _ToolOfQuestionFilter(_ToolFilter):
    path = "tool_call__name"


class _KindOfQuestionFilter(_KindFilter):
    path = "tool_call__name__in"


@admin.register(ToolCall)
class ToolCallAdmin(ConversationContentAdmin):
    owner = "turn__conversation__owner"
    change_list_template = "admin/conversations/toolcall/change_list.html"
    list_display = [
        "name",
        "state",
        "duration",
        "started_at",
        "attempts",
        "blocking",
        "turn",
        "call_id",
    ]
    list_filter = [
        "state",
        _KindFilter,
        _ToolFilter,
        ("blocking", admin.BooleanFieldListFilter),
        _LateFilter,
        "created_at",
    ]
    list_select_related = ["turn"]
    ordering = ["-created_at", "-id"]
    search_fields = ["=call_id", "=name"]
    search_help_text = _(
        "The id of a call, a turn, an item or a conversation, or the name of a tool."
    )
    date_hierarchy = "created_at"
    fieldsets = [
        (
            None,
            {"fields": ["name", "state", "error", "call_id", "turn_link", "attempts"]},
        ),
        (_("Arguments and result"), {"fields": ["arguments", "result"]}),
        (_("Decisions"), {"fields": ["question_links"]}),
        (
            _("Times"),
            {"fields": ["created_at", "started_at", "ended_at", "duration"]},
        ),
        (
            _("In the background"),
            {
                "fields": [
                    "blocking",
                    "progress",
                    "accepted_at",
                    "deadline_at",
                    "poll_at",
                    "cancel_requested",
                    "late_at",
                    "result_turn_link",
                    "epoch",
                    "lease_until",
                ],
                "classes": ["collapse"],
            },
        ),
    ]

    class Media:
        css = {"all": ["css/turn-timeline.css", "css/tool-admin.css"]}

    def find_ids(self, rows: QuerySet[ToolCall], term: str) -> set[int]:
        found: set[int] = super().find_ids(rows, term)
        of_turns = rows.filter(turn__in=find_turns(term))
        return found | set(of_turns.values_list("pk", flat=True)[:MAX_FOUND])

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.statistics_view)
        name = "conversations_toolcall_statistics"
        return [path("statistics/", view, name=name), *super().get_urls()]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [n for _title, options in self.fieldsets for n in options["fields"]]

    def statistics_view(self, request: HttpRequest) -> HttpResponse:
        """Statistics of the calls that the requesting user may see."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        period = request.GET.get("period", USUAL_PERIOD)
        if period not in PERIODS:
            period = USUAL_PERIOD
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Tool statistics"),
            "period": period,
            "periods": _PERIOD_LABELS.items(),
            "report": report_all(period)
            if request.user.has_perm(INSPECT)
            else report(self.get_queryset(request), period),
        }
        template = "admin/conversations/toolcall/statistics.html"
        return TemplateResponse(request, template, context)

    @admin.display(description=_("duration"))
    def duration(self, call: ToolCall) -> str:
        return "–" if call.seconds is None else f"{call.seconds * 1000:.0f} ms"

    @admin.display(description=_("turn"))
    def turn_link(self, call: ToolCall) -> SafeString:
        return _link("turn", call.turn_id)

    @admin.display(description=_("delivered in the turn"))
    def result_turn_link(self, call: ToolCall) -> SafeString | str:
        return _link("turn", call.delivered_in_id) if call.delivered_in_id else "–"

    @admin.display(description=_("arguments"))
    def arguments(self, call: ToolCall) -> SafeString | str:
        items = Item.objects.filter(
            turn=call.turn_id, type="function_call", payload__call_id=call.call_id
        )
        payload = items.values_list("payload", flat=True).first()
        return _text(payload["arguments"]) if payload else "–"

    @admin.display(description=_("result"))
    def result(self, call: ToolCall) -> SafeString | str:
        return "–" if call.output is None else _text(call.output)

    @admin.display(description=_("questions"))
    def question_links(self, call: ToolCall) -> SafeString | str:
        questions = call.questions.select_related("decided_by")
        links = format_html_join(
            "", "<li>{}: {}</li>", ((_link("question", q.pk), q) for q in questions)
        )
        return format_html("<ul>{}</ul>", links) if links else "–"


@admin.register(Question)
class QuestionAdmin(GrantsAdmin, ConversationContentAdmin):
    owner = "tool_call__turn__conversation__owner"
    list_display = [
        "id",
        "tool",
        "kind",
        "state",
        "is_edited",
        "group",
        "decided_by",
        "asked_at",
        "decided_at",
    ]
    list_filter = [
        "state",
        "kind",
        _KindOfQuestionFilter,
        _ToolOfQuestionFilter,
        "asked_at",
    ]
    date_hierarchy = "asked_at"
    list_select_related = ["tool_call", "group", "decided_by"]
    ordering = ["-asked_at", "-id"]
    search_fields = [
        "=id",
        "=tool_call__call_id",
        "=tool_call__name",
        "=tool_call__turn__id",
        "=decided_by__username",
    ]
    search_help_text = _(
        "The id of a question, a call or a turn; the name of a tool, or of the user"
        " who decided."
    )
    fieldsets = [
        (None, {"fields": ["tool", "call_link", "kind", "state", "message"]}),
        (
            _("Decision"),
            {"fields": ["decided_by", "decided_at", "note", "group"]},
        ),
        (
            _("Question and answer"),
            {"fields": ["content", "answer_content"]},
        ),
        (_("Times"), {"fields": ["asked_at", "expires_at"]}),
    ]

    class Media:
        css = {"all": ["css/turn-timeline.css", "css/tool-admin.css"]}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [n for _title, options in self.fieldsets for n in options["fields"]]

    @admin.display(description=_("tool"), ordering="tool_call__name")
    def tool(self, question: Question) -> str:
        return question.tool_call.name

    @admin.display(description=_("changed"), boolean=True)
    def is_edited(self, question: Question) -> bool:
        return question.is_edited

    @admin.display(description=_("call"))
    def call_link(self, question: Question) -> SafeString:
        return _link("toolcall", question.tool_call_id)

    @admin.display(description=_("question"))
    def content(self, question: Question) -> SafeString | str:
        form = question.kind == Question.Kind.FORM
        return _text(question.schema if form else question.arguments)

    @admin.display(description=_("answer"))
    def answer_content(self, question: Question) -> SafeString | str:
        """The approved arguments, compared with those the model wrote."""
        if question.answer is None:
            return "–"
        if question.kind == Question.Kind.FORM:
            return _text(question.answer)
        if not question.is_edited:
            return str(_("unchanged"))
        lines = diff_lines(_pretty(question.arguments), _pretty(question.answer))
        return render_to_string("admin/tools/lines.html", {"lines": lines})


def _link(model: str, pk: Any) -> SafeString:
    url = reverse(f"admin:conversations_{model}_change", args=[quote(str(pk))])
    return format_html('<a href="{}">{}</a>', url, pk)


def _text(value: Any) -> SafeString:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return format_html('<pre class="said">{}</pre>', value)
    return format_html('<pre class="said">{}</pre>', _pretty(value))


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)
