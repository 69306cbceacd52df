"""Admin of conversations, with a filter and a link to their turns."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import (
    Count,
    OuterRef,
    QuerySet,
    Subquery,
)
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from conversations import engine
from conversations.admin.actions.conversations import ConversationActionsMixin
from conversations.admin.conversation_content import EDIT
from conversations.models import (
    Conversation,
    TitleSource,
    Turn,
)
from conversations.staff.id_search import find_conversations


@admin.register(Conversation)
class ConversationAdmin(ConversationActionsMixin):
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
    list_filter = [
        "updated_at",
        ("archived_at", admin.EmptyFieldListFilter),
        ("deleted_at", admin.EmptyFieldListFilter),
    ]
    list_select_related = ["owner", "language_model", "preset"]
    date_hierarchy = "updated_at"
    actions = ["archive", "unarchive", "export", "delete_softly"]
    search_fields = ["title", "=owner__username", "=owner__email"]
    search_help_text = _(
        "The id of a conversation, a turn, an item, a tool call, or of a provider's"
        " request or response; words of the title; or the owner's name or e-mail."
    )
    readonly_fields = [
        "id",
        "owner",
        "language_model",
        "preset",
        "options",
        "folder",
        "title_source",
        "pinned_at",
        "archived_at",
        "is_temporary",
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
        return rows.annotate(turn_count=Subquery(count)).defer("imported_names")

    def find_ids(self, rows: QuerySet[Conversation], term: str) -> set[str]:
        return super().find_ids(rows, term) | find_conversations(term)

    def save_model(
        self, request: HttpRequest, obj: Conversation, form: Any, change: bool
    ) -> None:
        if "title" in form.changed_data:
            obj.title_source = TitleSource.PERSON
        super().save_model(request, obj, form, change)
        if "title" in form.changed_data:
            engine.announce_rename(obj)

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
