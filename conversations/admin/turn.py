"""Admin of turns: timeline, corrections and stop."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import (
    Exists,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
)
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from conversations import engine
from conversations.admin.actions.turns import TurnActionsMixin, may_stop
from conversations.admin.conversation_content import EDIT
from conversations.admin.correction_forms import TurnOptionsForm
from conversations.admin.engine import CANCEL, EnginePage, ask_before, may_act
from conversations.admin.replay import may_replay
from conversations.models import (
    Turn,
)
from conversations.staff.expensive_conversations import UNPRICED
from conversations.staff.id_search import find_turns, find_turns_of
from conversations.staff.replay_report import MAX_ROWS
from conversations.staff.turn_event_page import event_page
from conversations.staff.turn_time_chart import time_chart
from conversations.staff.turn_timeline import timeline
from llm.models import ModelCall
from llm.pricing.dollars import format_dollars

_OF_OTHERS = _(
    "This id belongs to another person's conversation. To read it, you need the"
    " permission “Can read other people's turns”."
)


@admin.register(Turn)
class TurnAdmin(TurnActionsMixin):
    owner = "conversation__owner"
    form = TurnOptionsForm
    list_display = [
        "id",
        "status",
        "conversation",
        "language_model",
        "created_at",
        "duration",
        "tokens",
        "cost",
        "epoch",
    ]
    list_filter = ["status", "created_at", "language_model"]
    list_select_related = ["conversation", "language_model"]
    date_hierarchy = "created_at"
    ordering = ["-created_at", "-id"]
    search_fields = ["=id"]
    search_help_text = _(
        "The id of a turn, a conversation, an item, a tool call, or of a provider's"
        " request or response; or the owner's name."
    )
    readonly_fields = [
        "id",
        "conversation_link",
        "owner_name",
        "language_model",
        "status",
        "incomplete_reason",
        "preset_version",
        "error",
        "duration",
        "tokens",
        "cost",
        "epoch",
        "parent",
        "deleted_at",
        "created_at",
        "started_at",
        "finished_at",
    ]
    fields = [*readonly_fields, "options"]
    change_form_template = "admin/conversations/turn/change_form.html"

    class Media:
        css = {"all": ["css/turn-timeline.css"]}

    actions = ["stop_turns", "retry_turns", "release_turns", "replay"]

    @admin.action(description=_("Replay the selected turns…"))
    def replay(self, request: HttpRequest, turns: QuerySet[Turn]) -> HttpResponse:
        ids = turns.order_by().values_list("pk", flat=True)[:MAX_ROWS]
        query = urlencode([("turn", each) for each in ids])
        return redirect(f"{reverse('admin:conversations_replay_new')}?{query}")

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        found: dict[str, Any] = super().get_actions(request)
        if not may_replay(request):
            found.pop("replay", None)
        return found

    def get_queryset(self, request: HttpRequest) -> QuerySet[Turn]:
        calls = ModelCall.objects.filter(turn_id=OuterRef("pk")).order_by()
        cost = calls.values("turn_id").annotate(sum=Sum("cost")).values("sum")
        rows: QuerySet[Turn] = super().get_queryset(request)
        return rows.annotate(
            cost=Subquery(cost),
            is_unpriced=Exists(calls.filter(UNPRICED)),
            is_estimated=Exists(calls.filter(is_estimated=True)),
        ).defer("partial")

    def find_ids(self, rows: QuerySet[Turn], term: str) -> set[str]:
        return find_turns(term) | find_turns_of(term)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(EDIT) and is_at_rest(obj)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        may_change = obj is not None and self.has_change_permission(request, obj)
        return [*self.fields, "seen"] if may_change else self.fields

    def get_urls(self) -> list[URLPattern]:
        stop = self.admin_site.admin_view(require_POST(self.stop_view))
        name = "conversations_turn_stop"
        events = self.admin_site.admin_view(never_cache(self.events_view))
        return [
            *EnginePage(self).urls(),
            path("<path:object_id>/stop/", stop, name=name),
            path("<str:pk>/events/", events, name="conversations_turn_events"),
            *super().get_urls(),
        ]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        turn = kwargs.get("obj")
        if turn is not None and self.has_view_permission(request, turn):
            context["timeline"] = entries = timeline(turn)
            context["chart"] = time_chart(turn, entries)
            visible: Any = self.get_queryset(request).order_by()
            beside = visible.beside(turn)
            context["previous_turn"], context["next_turn"] = beside
            context["may_stop"] = not turn.is_finished and may_stop(request)
            context["may_replay"] = turn.is_finished and may_replay(request)
            context["may_act"] = not turn.is_finished and may_act(request)
        return super().render_change_form(request, context, *args, **kwargs)

    def changelist_view(
        self, request: HttpRequest, extra_context: Any = None
    ) -> HttpResponse:
        """An id leads straight to what it names."""
        term = request.GET.get("q", "").strip()
        if term and self.has_view_permission(request):
            visible = self.get_queryset(request).filter(pk__in=find_turns(term))
            if (found := list(visible[:2])) and len(found) == 1:
                return redirect("admin:conversations_turn_change", found[0].pk)
            if not found and (call := _find_call(request, term)):
                return redirect("admin:llm_modelcall_change", call.pk)
            if not found and Turn.objects.filter(pk__in=find_turns(term)).exists():
                messages.warning(request, _OF_OTHERS)
        return super().changelist_view(request, extra_context)

    def events_view(self, request: HttpRequest, pk: str) -> HttpResponse:
        turn = self.get_object(request, pk)
        if turn is None:
            raise Http404
        if not self.has_view_permission(request, turn):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "row": turn,
            "title": _("Events"),
            "page": event_page(turn, request.GET.get("at", "")),
        }
        template = "admin/conversations/turn/events.html"
        return TemplateResponse(request, template, context)

    def stop_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        turn = self.get_object(request, object_id)
        if turn is None:
            raise Http404
        if not may_stop(request):
            raise PermissionDenied
        if "confirmed" not in request.POST:
            address = reverse("admin:conversations_turn_stop", args=[turn.pk])
            return ask_before(self, request, turn, CANCEL, address)
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
        if turn.cost is None:
            return "–"
        mark = "≥" if turn.is_unpriced else "~" if turn.is_estimated else ""
        return f"{mark}{format_dollars(turn.cost)}"


def _find_call(request: HttpRequest, term: str) -> ModelCall | None:
    """The call of no turn that has this id, for who may see calls."""
    if not request.user.has_perm("llm.view_modelcall"):
        return None
    ids = Q(request_id=term) | Q(our_request_id=term)
    return ModelCall.objects.filter(ids, turn_id="").first()


def is_at_rest(turn: Turn | None) -> bool:
    """A run has its items in memory and would not notice changes to the rows."""
    return turn is None or turn.is_finished
