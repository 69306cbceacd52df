"""Admin of links, of rules about them and of participants; it shows no content."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from conversations.admin.actions.revocation import RevocationMixin
from conversations.models import Participant, ShareLink, ShareRule
from llm.admin import LargeTableAdmin


@admin.register(ShareLink)
class ShareLinkAdmin(RevocationMixin, LargeTableAdmin):
    actions = ["revoke"]
    revocation_effect = _(
        "Nobody can open these links from now on. It cannot be taken back."
    )
    list_display = [
        *("id", "owner", "audience", "group", "kind", "views"),
        *("created_at", "expires_at", "revoked_at"),
    ]
    list_filter = ["audience", "kind", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["owner", "group"]
    search_fields = ["=id", "=conversation__id", "=owner__username"]
    search_help_text = _("The id of a link or conversation, or the owner's name.")
    fields = [
        *("owner", "conversation_id", "audience", "group", "kind", "shows_owner"),
        *("shows_reasoning", "shows_arguments", "shows_results", "views"),
        *("created_at", "expires_at", "revoked_at"),
    ]
    readonly_fields = [
        *("owner", "conversation_id", "audience", "group", "kind", "shows_owner"),
        *("shows_reasoning", "shows_arguments", "shows_results", "views"),
        *("created_at", "expires_at", "revoked_at"),
    ]

    @admin.display(description=_("conversation"))
    def conversation_id(self, link: ShareLink) -> str:
        return link.conversation_id

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False


@admin.register(ShareRule)
class ShareRuleAdmin(admin.ModelAdmin):
    list_display = ["group", "widest"]
    list_select_related = ["group"]


@admin.register(Participant)
class ParticipantAdmin(LargeTableAdmin):
    ordering = ["-pk"]
    list_display = [
        *("conversation_id", "user", "role", "invited_by"),
        *("created_at", "accepted_at", "revoked_at"),
    ]
    list_filter = ["role", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["user", "invited_by"]
    search_fields = ["=conversation__id", "=user__username"]
    fields = [
        *("conversation_id", "user", "name", "role", "invited_by"),
        *("created_at", "accepted_at", "revoked_at"),
    ]
    readonly_fields = [
        *("conversation_id", "user", "name", "role", "invited_by"),
        *("created_at", "accepted_at", "revoked_at"),
    ]

    @admin.display(description=_("conversation"))
    def conversation_id(self, row: Participant) -> str:
        return row.conversation_id

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False
