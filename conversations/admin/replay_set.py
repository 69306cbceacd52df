"""Admin of saved sets: turns under a name, to run them again and again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from conversations.admin.conversation_content import INSPECT
from conversations.admin.replay import VIEW, may_replay
from conversations.models import ReplaySet
from conversations.staff.replay_report import MAX_ROWS
from llm.admin.bases import ReadOnlyAdmin


@admin.register(ReplaySet)
class ReplaySetAdmin(ReadOnlyAdmin):
    """Sets are saved on the page of a new replay, and started from here."""

    list_display = ["name", "turn_count", "created_by", "created_at", "run_link"]
    list_select_related = ["created_by"]
    readonly_fields = ["name", "created_by", "created_at", "run_link", "turn_links"]
    fields = [*readonly_fields]

    def get_queryset(self, request: HttpRequest) -> QuerySet[ReplaySet]:
        rows: QuerySet[ReplaySet] = super().get_queryset(request)
        return rows.annotate(turn_count=Count("turns"))

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(INSPECT) and request.user.has_perm(VIEW)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        permission = "conversations.delete_replayset"
        return may_replay(request) and request.user.has_perm(permission)

    def get_list_display(self, request: HttpRequest) -> Any:
        return [*_without_run(self.list_display, request)]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [*_without_run(self.fields, request)]

    @admin.display(description=_("turns"))
    def turn_count(self, row: Any) -> int:
        return int(row.turn_count)

    @admin.display(description=_("run"))
    def run_link(self, row: ReplaySet) -> SafeString:
        url = reverse("admin:conversations_replay_new")
        return format_html('<a href="{}?set={}">{}</a>', url, row.pk, _("Replay"))

    @admin.display(description=_("turns"))
    def turn_links(self, row: ReplaySet) -> SafeString | str:
        ids = row.turns.order_by("created_at", "pk").values_list("pk", flat=True)
        name = "admin:conversations_turn_change"
        links = ((reverse(name, args=[pk]), pk) for pk in ids[:MAX_ROWS])
        lines = format_html_join("", '<li><a href="{}">{}</a></li>', links)
        return format_html("<ul>{}</ul>", lines) if lines else "–"


def _without_run(names: Iterable[Any], request: HttpRequest) -> Iterator[Any]:
    """Without the link to a new replay for who may not start one."""
    return (name for name in names if name != "run_link" or may_replay(request))
