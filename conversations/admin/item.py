"""Admin of items, whose text staff may correct."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from conversations import engine
from conversations.admin.conversation_content import EDIT, ConversationContentAdmin
from conversations.admin.correction_forms import item_form, text_fields
from conversations.admin.turn import is_at_rest
from conversations.models import Item, Turn
from conversations.models.policy.legal_hold import (
    is_conversation_held,
    of_held_conversation,
)
from conversations.staff.id_search import MAX_FOUND, find_turns
from conversations.staff.item_text_corrections import item_texts


@admin.register(Item)
class ItemAdmin(ConversationContentAdmin):
    owner = "turn__conversation__owner"
    list_display = ["id", "turn", "position", "origin", "type", "item_id", "created_at"]
    list_select_related = ["turn"]
    ordering = ["-id"]
    search_fields = ["=turn__id"]
    search_help_text = _("The id of an item, a turn, a conversation or a call.")
    readonly_fields = [
        "turn_link",
        "position",
        "origin",
        "type",
        "created_at",
        "proof",
        "content",
    ]

    class Media:
        css = {"all": ["css/turn-timeline.css"]}

    def find_ids(self, rows: QuerySet[Item], term: str) -> set[int]:
        by_id = Item.objects.with_ids([term]).order_by().values_list("pk", flat=True)
        if found := set(by_id[:MAX_FOUND]):
            return found
        of_turns = rows.filter(turn__in=find_turns(term))
        return set(of_turns.values_list("pk", flat=True)[:MAX_FOUND])

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        at_rest = is_at_rest(obj.turn if obj else None)
        return request.user.has_perm(EDIT) and at_rest and not _is_held(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """An unfinished turn keeps its items, but is deleted with them: Django asks for
        each item of a turn, a conversation or a user that is to be deleted."""
        at_rest = not _is_page_of_items(request) or is_at_rest(
            obj.turn if obj else None
        )
        may_delete = super().has_delete_permission(request, obj)
        return may_delete and at_rest and not _is_held(obj)

    def delete_model(self, request: HttpRequest, obj: Item) -> None:
        turn_id = obj.turn_id
        obj.erase()
        transaction.on_commit(partial(engine.forget, turn_id))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Item]) -> None:
        owner = "turn__conversation__owner"
        held = of_held_conversation("turn__conversation", owner)
        free = queryset.exclude(held).exclude(turn__status__in=Turn.UNFINISHED)
        for item in free.select_related("turn"):
            self.delete_model(request, item)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        about = self.readonly_fields[:-1]
        if obj is None or not self.has_change_permission(request, obj):
            return [(None, {"fields": self.readonly_fields})]
        whole = {"fields": ["payload"], "classes": ["collapse"]}
        return [
            (None, {"fields": about}),
            (_("Content"), {"fields": [*text_fields(obj), "seen"]}),
            (_("Complete item"), whole),
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
        """Names what changed, without the old or new content."""
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

    @admin.display(description=_("content"))
    def content(self, item: Item) -> SafeString:
        whole = json.dumps(item.payload, ensure_ascii=False, indent=2)
        texts = "\n\n".join(item_text.text for item_text in item_texts(item.payload))
        return format_html('<pre class="content">{}</pre>', texts or whole)


def _is_page_of_items(request: HttpRequest) -> bool:
    match = request.resolver_match
    return match is None or (match.url_name or "").startswith("conversations_item_")


def _is_held(item: Item | None) -> bool:
    if item is None:
        return False
    conversation = item.turn.conversation
    return is_conversation_held(conversation.pk, conversation.owner_id)
