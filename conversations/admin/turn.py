from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import (
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
)
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from conversations import engine
from conversations.admin.conversation_content import EDIT, ConversationContentAdmin
from conversations.admin.engine import EnginePage
from conversations.admin.forms import TurnOptionsForm
from conversations.models import (
    Item,
    ToolCall,
    Turn,
)
from conversations.staff.turn_timeline import timeline
from llm.models import ModelCall


@admin.register(Turn)
class TurnAdmin(ConversationContentAdmin):
    owner = "conversation__owner"
    form = TurnOptionsForm
    list_display = [
        "id",
        "conversation",
        "status",
        "language_model",
        "created_at",
        "duration",
        "tokens",
        "cost",
        "epoch",
    ]
    list_filter = ["status", "created_at", "language_model"]
    list_select_related = ["conversation", "language_model"]
    ordering = ["-created_at", "-id"]
    search_fields = ["=id"]
    search_help_text = _(
        "The id of a turn, a conversation, an item, a tool call, a provider's request"
        " or response; or the owner's name."
    )
    readonly_fields = [
        "id",
        "conversation_link",
        "owner_name",
        "language_model",
        "status",
        "incomplete_reason",
        "error",
        "duration",
        "tokens",
        "cost",
        "epoch",
        "created_at",
        "started_at",
        "finished_at",
    ]
    fields = [*readonly_fields, "options"]
    change_form_template = "admin/conversations/turn/change_form.html"

    class Media:
        css = {"all": ["css/turn-timeline.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        calls = ModelCall.objects.filter(turn_id=OuterRef("pk")).order_by()
        cost = calls.values("turn_id").annotate(sum=Sum("cost")).values("sum")
        rows: QuerySet[Turn] = super().get_queryset(request)
        return rows.annotate(cost=Subquery(cost)).defer("partial")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Turn], search_term: str
    ) -> tuple[QuerySet[Turn], bool]:
        term = search_term.strip()
        return (queryset.filter(_search_filter(term)) if term else queryset), False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(EDIT) and is_at_rest(obj)

    def get_urls(self) -> list[URLPattern]:
        stop = self.admin_site.admin_view(require_POST(self.stop_view))
        name = "conversations_turn_stop"
        return [
            *EnginePage(self).urls(),
            path("<path:object_id>/stop/", stop, name=name),
            *super().get_urls(),
        ]

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        turn = self.get_object(request, unquote(object_id))
        context = extra_context or {}
        if turn is not None and self.has_view_permission(request, turn):
            context["timeline"] = timeline(turn)
            context["may_stop"] = not turn.is_finished and _may_stop(request)
        return super().change_view(request, object_id, form_url, context)

    def stop_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        turn = self.get_object(request, unquote(object_id))
        if turn is None:
            raise Http404
        if not _may_stop(request):
            raise PermissionDenied
        engine.cancel(turn)
        self.log_change(request, turn, "Stopped.")
        messages.success(request, _("The turn is being stopped."))
        return redirect("admin:conversations_turn_change", turn.pk)

    @admin.display(description=_("conversation"))
    def conversation_link(self, turn: Turn) -> SafeString:
        url = reverse(
            "admin:conversations_conversation_change", args=[turn.conversation_id]
        )
        return format_html('<a href="{}">{}</a>', url, turn.conversation)

    @admin.display(description=_("owner"))
    def owner_name(self, turn: Turn) -> str:
        return str(turn.conversation.owner)

    @admin.display(description=_("duration"))
    def duration(self, turn: Turn) -> str:
        return "–" if turn.seconds is None else f"{turn.seconds:.1f} s"

    @admin.display(description=_("tokens in / out"))
    def tokens(self, turn: Turn) -> str:
        usage = turn.usage or {}
        if not usage:
            return "–"
        return f"{usage.get('input_tokens', 0)} / {usage.get('output_tokens', 0)}"

    @admin.display(description=_("cost"), ordering="cost")
    def cost(self, turn: Any) -> str:
        return "–" if turn.cost is None else f"${turn.cost:.4f}"


def is_at_rest(turn: Turn | None) -> bool:
    """A run has its items in memory and would not notice changes to the rows."""
    return turn is None or turn.is_finished


def _may_stop(request: HttpRequest) -> bool:
    return request.user.has_perm(EDIT) or request.user.has_perm(
        "conversations.change_turn"
    )


def _search_filter(term: str) -> Q:
    """Filter for turns that have this id, or contain an object with this id."""
    requests = ModelCall.objects.filter(Q(request_id=term) | Q(response_id=term))
    found = {
        *Item.objects.with_ids([term]).values_list("turn", flat=True),
        *ToolCall.objects.filter(call_id=term).values_list("turn", flat=True),
        *requests.values_list("turn_id", flat=True),
    }
    by_conversation = Q(conversation=term) | Q(conversation__owner__username=term)
    return Q(pk__in={term, *found}) | by_conversation
