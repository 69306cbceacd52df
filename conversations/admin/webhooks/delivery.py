"""Admin of deliveries, read-only, with an action that sends them again."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from conversations.models import Delivery
from conversations.models.webhooks.error_texts import translate_delivery_error
from llm.admin import LargeTableAdmin

MOST_SENT = 1000  # by one action
_FIELDS: list[Any] = [
    *("event_id", "type", "endpoint", "user", "conversation_id", "data", "state"),
    *("attempts", "last_status", "shown_error", "created_at", "next_attempt_at"),
    *("expires_at", "delivered_at"),
]


@admin.register(Delivery)
class DeliveryAdmin(LargeTableAdmin):
    ordering = ["-pk"]
    list_display = [
        *("event_id", "type", "endpoint", "user", "state", "attempts"),
        *("last_status", "shown_error", "created_at"),
    ]
    list_filter = ["state", "type", "created_at"]
    list_select_related = ["endpoint", "user"]
    search_fields = ["=event_id", "=conversation__id", "=endpoint__name"]
    search_help_text = _("An id of an event or conversation, or an endpoint's name.")
    actions = ["send_again"]
    change_form_template = "admin/conversations/delivery/change_form.html"
    fields = _FIELDS
    readonly_fields = _FIELDS

    @admin.display(description=_("conversation"))
    def conversation_id(self, row: Delivery) -> str:
        return row.conversation_id or ""

    @admin.display(description=_("last error"))
    def shown_error(self, row: Delivery) -> str:
        return translate_delivery_error(row.last_error)

    @admin.action(description=_("Send the selected ones again"), permissions=["change"])
    def send_again(self, request: HttpRequest, rows: QuerySet[Delivery]) -> None:
        chosen = list(rows[:MOST_SENT])
        for row in chosen:
            self._send_and_log(request, row)
        _report(request, len(chosen))

    def response_change(self, request: HttpRequest, obj: Delivery) -> HttpResponse:
        """The only button of the page, which has no field to fill in."""
        self._send_and_log(request, obj)
        _report(request, 1)
        return HttpResponseRedirect(request.path)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        """Only what was sent again: the form changes nothing."""
        return super().log_change(request, obj, message) if message else None

    def _send_and_log(self, request: HttpRequest, row: Delivery) -> None:
        row.send_again()
        self.log_change(request, row, "Sent again.")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _report(request: HttpRequest, count: int) -> None:
    text = ngettext(
        "%(count)d delivery is sent again.",
        "%(count)d deliveries are sent again.",
        count,
    )
    messages.success(request, text % {"count": count})
