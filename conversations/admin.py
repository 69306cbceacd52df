from __future__ import annotations

import json
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import (
    Count,
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
from django.utils.translation import ngettext
from django.views.decorators.http import require_POST

from conversations import engine
from conversations.admin_forms import TurnForm, item_form, text_fields
from conversations.corrections import places
from conversations.engine_admin import EnginePage
from conversations.memories import Memory
from conversations.models import (
    Attachment,
    Conversation,
    IdempotencyKey,
    Item,
    ToolCall,
    Turn,
)
from conversations.said_admin import EDIT, SaidAdmin
from conversations.timeline import timeline
from llm.models import ModelCall


@admin.register(Conversation)
class ConversationAdmin(SaidAdmin):
    owner = "owner"
    list_display = [
        "__str__",
        "id",
        "owner",
        "language_model",
        "preset",
        "turn_count",
        "updated_at",
        "deleted_at",
    ]
    list_filter = ["updated_at", ("deleted_at", admin.EmptyFieldListFilter)]
    list_select_related = ["owner", "language_model", "preset"]
    search_fields = ["=id", "title", "owner__username", "=owner__email"]
    search_help_text = _("An id, words of the title, or the owner's name or e-mail.")
    readonly_fields = [
        "id",
        "owner",
        "language_model",
        "preset",
        "options",
        "turns_link",
        "created_at",
        "updated_at",
        "deleted_at",
    ]
    fields = ["title", "instructions", *readonly_fields]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        turns = Turn.objects.filter(conversation=OuterRef("pk")).order_by()
        count = turns.values("conversation").annotate(count=Count("pk")).values("count")
        rows: QuerySet[Conversation] = super().get_queryset(request)
        return rows.annotate(turn_count=Subquery(count))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(EDIT)

    @admin.display(description=_("turns"))
    def turn_count(self, conversation: Any) -> int:
        return conversation.turn_count or 0

    @admin.display(description=_("turns"))
    def turns_link(self, conversation: Conversation) -> SafeString:
        url = reverse("admin:conversations_turn_changelist")
        return format_html(
            '<a href="{}?conversation__id__exact={}">{}</a>',
            url,
            conversation.pk,
            self.turn_count(conversation),
        )


@admin.register(Turn)
class TurnAdmin(SaidAdmin):
    owner = "conversation__owner"
    form = TurnForm
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
        return (queryset.filter(_led_to_by(term)) if term else queryset), False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(EDIT) and _is_at_rest(obj)

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


def _is_at_rest(turn: Turn | None) -> bool:
    """A run holds its items in memory; what is changed meanwhile would not be heard."""
    return turn is None or turn.is_finished


def _may_stop(request: HttpRequest) -> bool:
    return request.user.has_perm(EDIT) or request.user.has_perm(
        "conversations.change_turn"
    )


def _led_to_by(term: str) -> Q:
    """Turns that have this id, or something with this id."""
    requests = ModelCall.objects.filter(Q(request_id=term) | Q(response_id=term))
    found = {
        *Item.objects.filter(payload__id=term).values_list("turn", flat=True),
        *ToolCall.objects.filter(call_id=term).values_list("turn", flat=True),
        *requests.values_list("turn_id", flat=True),
    }
    theirs = Q(conversation=term) | Q(conversation__owner__username=term)
    return Q(pk__in={term, *found}) | theirs


@admin.register(Item)
class ItemAdmin(SaidAdmin):
    owner = "turn__conversation__owner"
    list_display = ["id", "turn", "position", "origin", "type", "item_id", "created_at"]
    list_filter = ["origin", "created_at"]
    list_select_related = ["turn"]
    ordering = ["-id"]
    search_fields = ["=turn__id", "=turn__conversation__id", "payload__id"]
    search_help_text = _("The id of an item, a turn or a conversation.")
    readonly_fields = [
        "turn_link",
        "position",
        "origin",
        "type",
        "created_at",
        "proof",
        "said",
    ]

    class Media:
        css = {"all": ["css/turn-timeline.css"]}

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        at_rest = _is_at_rest(obj.turn if obj else None)
        return request.user.has_perm(EDIT) and at_rest

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        about = self.readonly_fields[:-1]
        if obj is None or not self.has_change_permission(request, obj):
            return [(None, {"fields": self.readonly_fields})]
        whole = {"fields": ["payload"], "classes": ["collapse"]}
        return [
            (None, {"fields": about}),
            (_("What was said"), {"fields": list(text_fields(obj))}),
            (_("The whole item"), whole),
        ]

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is not None and self.has_change_permission(request, obj):
            kwargs["form"] = item_form(obj)
        return super().get_form(request, obj, change, **kwargs)

    def save_model(
        self, request: HttpRequest, obj: Item, form: Any, change: bool
    ) -> None:
        form.proofs_dropped = 0
        if form.has_changed():
            form.proofs_dropped = obj.correct(form.cleaned_data["payload"])
            transaction.on_commit(partial(engine.forget, obj.turn_id))

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> list[dict[str, Any]]:
        """What changed, never to or from what."""
        changes: list[dict[str, Any]] = super().construct_change_message(
            request, form, formsets, add
        )
        if count := form.proofs_dropped:
            dropped = ngettext("%d item", "%d items", count) % count
            changes.append({"deleted": {"name": "proofs", "object": dropped}})
        return changes

    @admin.display(description=_("item"))
    def item_id(self, item: Item) -> str:
        return str(item.payload.get("id", ""))

    @admin.display(description=_("turn"))
    def turn_link(self, item: Item) -> SafeString:
        url = reverse("admin:conversations_turn_change", args=[item.turn_id])
        return format_html('<a href="{}">{}</a>', url, item.turn_id)

    @admin.display(description=_("proof"))
    def proof(self, item: Item) -> str:
        if not item.provider_data:
            return "–"
        issuer = item.provider_data.get("issuer", {})
        return f"{issuer.get('provider', '?')}/{issuer.get('model', '?')}"

    @admin.display(description=_("what was said"))
    def said(self, item: Item) -> SafeString:
        whole = json.dumps(item.payload, ensure_ascii=False, indent=2)
        texts = "\n\n".join(place.text for place in places(item.payload))
        return format_html('<pre class="said">{}</pre>', texts or whole)


@admin.register(IdempotencyKey)
class IdempotencyKeyAdmin(SaidAdmin):
    owner = "user"
    list_display = ["key", "user", "turn", "created_at"]
    list_filter = ["created_at"]
    list_select_related = ["user", "turn"]
    ordering = ["-id"]
    search_fields = ["=key", "=turn__id", "=user__username"]
    raw_id_fields = ["user", "turn"]


@admin.register(Attachment)
class AttachmentAdmin(SaidAdmin):
    owner = "conversation__owner"
    list_display = ["id", "name", "conversation", "content_type", "size", "created_at"]
    list_filter = ["created_at"]
    list_select_related = ["conversation"]
    ordering = ["-created_at"]
    search_fields = ["=id", "name", "=conversation__id"]
    # Without the file itself: nothing serves MEDIA_ROOT.
    fields = ["id", "name", "conversation", "content_type", "size", "created_at"]
    raw_id_fields = ["conversation"]


@admin.register(Memory)
class MemoryAdmin(SaidAdmin):
    owner = "user"
    list_display = ["__str__", "user", "conversation", "created_at", "deleted_at"]
    list_filter = ["created_at", ("deleted_at", admin.EmptyFieldListFilter)]
    list_select_related = ["user", "conversation"]
    ordering = ["-pk"]
    search_fields = ["=user__username", "=conversation__id"]
    search_help_text = _("A user's name, or the id of a conversation.")
    fields = ["user", "text", "conversation", "created_at", "updated_at", "deleted_at"]


# They register themselves.
from conversations import preset_admin, token_admin, tool_call_admin  # noqa: E402, F401
