"""Admin of webhook endpoints: those of staff, and users' own without their secrets."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from conversations.forms.webhook_forms import StaffWebhookForm, UsernamesField
from conversations.models import WebhookEndpoint
from conversations.models.webhooks.error_texts import translate_delivery_error
from llm.admin import LargeTableAdmin, report_rows

_STATE = [
    *("owner", "created_by", "created_at", "secret_hint", "last_success_at"),
    *("last_failure_at", "shown_error", "failures", "failing_since"),
    *("why_disabled", "previous_secret_until"),
]
#: Of a user's own endpoint, which staff do not rewrite.
_OF_OWNER = ["name", "url", "events", "users", "groups"]


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(LargeTableAdmin):
    form = StaffWebhookForm
    ordering = ["-pk"]
    list_display = [
        *("name", "owner", "is_enabled", "last_success_at", "failures"),
        *("shown_error", "why_disabled"),
    ]
    list_filter = ["is_enabled", ("owner", admin.EmptyFieldListFilter)]
    list_select_related = ["owner"]
    search_fields = ["name", "=owner__username"]
    search_help_text = _("A name, or that of the owner.")
    autocomplete_fields = ["users", "groups"]
    actions = ["renew_secrets"]
    readonly_fields = _STATE

    @admin.display(description=_("last error"))
    def shown_error(self, row: WebhookEndpoint) -> str:
        return translate_delivery_error(row.last_error)

    @admin.display(description=_("disabled reason"))
    def why_disabled(self, row: WebhookEndpoint) -> str:
        return translate_delivery_error(row.disabled_reason)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = ["name", "url", "networks", "events", "is_enabled"]
        sections = [
            (None, {"fields": fields}),
            (
                _("Whose events"),
                {
                    "fields": ["users", "groups"],
                    "description": _("Choose none for everybody's."),
                },
            ),
        ]
        return [*sections, (_("State"), {"fields": _STATE})] if obj else sections

    def get_autocomplete_fields(self, request: HttpRequest) -> list[str]:
        """Those whose rows the member of staff may list; the others are filled in
        without a search."""
        may_list = {
            "users": request.user.has_perm("auth.view_user"),
            "groups": request.user.has_perm("auth.view_group"),
        }
        return [name for name in self.autocomplete_fields if may_list[name]]

    def formfield_for_manytomany(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        if db_field.name in self.get_autocomplete_fields(request):
            return super().formfield_for_manytomany(db_field, request, **kwargs)
        if db_field.name == "users":
            return UsernamesField(label=db_field.verbose_name)
        return db_field.formfield(**kwargs)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        is_owned = obj is not None and obj.owner_id is not None
        return [*_STATE, *_OF_OWNER] if is_owned else _STATE

    def save_model(
        self, request: HttpRequest, obj: WebhookEndpoint, form: Any, change: bool
    ) -> None:
        if change:
            obj.save(update_fields=form.changed_columns())
            return
        obj.created_by_id = request.user.pk
        _show_once(request, obj, obj.renew_secret())

    @admin.action(
        description=_("Make new secrets for the selected ones"), permissions=["change"]
    )
    def renew_secrets(
        self, request: HttpRequest, rows: QuerySet[WebhookEndpoint]
    ) -> None:
        left_out: Counter[str] = Counter()
        count = 0
        for row in rows:
            if row.owner_id is not None:
                left_out[str(_("of a user, who makes it"))] += 1
                continue
            secret = row.renew_secret()
            self.log_change(request, row, "New secret.")
            _show_once(request, row, secret)
            count += 1
        done = ngettext("%(count)d secret made", "%(count)d secrets made", count)
        report_rows(
            self, request, done % {"count": count}, left_out, any_done=bool(count)
        )


def _show_once(request: HttpRequest, row: WebhookEndpoint, secret: str) -> None:
    notice = _("Copy the secret now; it is not shown again:")
    text = format_html("{}: {} <code>{}</code>", row.name, notice, secret)
    if row.previous_secret_until is not None:
        local = timezone.localtime(row.previous_secret_until)
        until = date_format(local, "SHORT_DATETIME_FORMAT")
        old = _("The old secret works until %(until)s.") % {"until": until}
        text = format_html("{} {}", text, old)
    messages.warning(request, text)
