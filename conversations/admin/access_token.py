"""Admin of access tokens: create, revoke, limits, budget and use."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import ForeignKey, Model, QuerySet
from django.forms import Form
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from conversations.admin.actions.revocation import RevocationMixin
from conversations.admin.correction_forms import UnchangedSince
from conversations.admin.reauthentication import ReauthenticationMixin
from conversations.forms.token_forms import (
    LimitsForm,
    describe_spending,
    list_scopes,
    money,
)
from conversations.models.access_token import AccessToken
from conversations.models.ledger import dollars
from llm.admin import LargeTableAdmin

_IDENTITY_FIELDS = ["user", "label", "expires_at"]
_LIMIT_FIELDS = [
    "scopes",
    "allowed_models",
    "allowed_tools",
    "allowed_conversations",
    "allowed_folders",
    "networks",
    "requests_per_minute",
    "tokens_per_minute",
    ("budget", "budget_period"),
    "declares_any_tool",
    "cache_seconds",
    "stores_responses",
    "allowed_origins",
]
_STATE_FIELDS = [
    "prefix",
    "created_at",
    "last_used_at",
    "revoked_at",
    "logs_requests_until",
    "spent",
    "by_period",
]


class StaffLimitsForm(UnchangedSince, LimitsForm):
    """An old page would take back the limits that others have set since. A save writes
    all columns, so a revocation is guarded as well."""

    guarded_lists = ("allowed_models",)
    guarded = (
        "expires_at",
        "revoked_at",
        "logs_requests_until",
        "scopes",
        "allowed_tools",
        "allowed_conversations",
        "allowed_folders",
        "networks",
        "requests_per_minute",
        "tokens_per_minute",
        "budget",
        "budget_period",
        "declares_any_tool",
        "cache_seconds",
        "stores_responses",
        "allowed_origins",
    )


@admin.register(AccessToken)
class AccessTokenAdmin(ReauthenticationMixin, RevocationMixin, LargeTableAdmin):
    """Only superusers issue tokens for others: a token gives access to the user's
    conversations."""

    form = LimitsForm  # of a new token
    ordering = ["-pk"]
    list_display = [
        "label",
        "prefix",
        "user",
        "scopes_shown",
        "spent",
        "created_at",
        "last_used_at",
        "expires_at",
        "revoked_at",
    ]
    list_filter = [
        "created_at",
        "declares_any_tool",
        ("revoked_at", admin.EmptyFieldListFilter),
    ]
    list_select_related = ["user"]
    search_fields = ["label", "=prefix", "=user__username"]
    raw_id_fields = ["user"]
    filter_horizontal = ["allowed_models"]
    actions = ["revoke", "log_requests", "log_no_requests"]
    revocation_effect = _(
        "Programs with these tokens are refused from now on. It cannot be taken back."
    )
    readonly_fields = _STATE_FIELDS

    def get_queryset(self, request: HttpRequest) -> QuerySet[AccessToken]:
        rows: QuerySet[AccessToken] = super().get_queryset(request)
        return rows if request.user.is_superuser else rows.filter(user=request.user.pk)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        may_change = obj and self.has_change_permission(request, obj)
        limits = [*_LIMIT_FIELDS, "seen"] if may_change else _LIMIT_FIELDS
        sections = [
            (None, {"fields": _IDENTITY_FIELDS}),
            (_("Permissions and limits"), {"fields": limits}),
        ]
        return [*sections, (_("Usage"), {"fields": _STATE_FIELDS})] if obj else sections

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fixed = [*self.readonly_fields, "user"] if obj else [*self.readonly_fields]
        if not request.user.has_perm("tools.change_declaredtool"):
            fixed.append("declares_any_tool")  # needs the group permission
        return fixed

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        if obj is not None and self.has_change_permission(request, obj):
            kwargs["form"] = StaffLimitsForm
        form = super().get_form(request, obj, change, **kwargs)
        scopes: Any = form.base_fields.get("scopes")
        if scopes is not None:
            scopes.choices = list_scopes(request.user)
        return form

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"user": request.user.pk, **super().get_changeform_initial_data(request)}

    def formfield_for_foreignkey(
        self, db_field: ForeignKey[Any, Any], request: Any, **kwargs: Any
    ) -> Any:
        if not request.user.is_superuser:
            users: type[Model] = db_field.related_model
            kwargs["queryset"] = users._default_manager.filter(pk=request.user.pk)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(
        self, request: HttpRequest, obj: AccessToken, form: Form, change: bool
    ) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        token = obj.generate_token()
        super().save_model(request, obj, form, change)
        notice = _("Copy the token now; it is not shown again:")
        messages.warning(request, format_html("{} <code>{}</code>", notice, token))

    @admin.action(
        description=_("Log the requests of the next 24 hours"), permissions=["change"]
    )
    def log_requests(self, request: HttpRequest, rows: QuerySet[AccessToken]) -> None:
        self._switch_log(request, rows, on=True)

    @admin.action(description=_("Log no requests"), permissions=["change"])
    def log_no_requests(
        self, request: HttpRequest, rows: QuerySet[AccessToken]
    ) -> None:
        self._switch_log(request, rows, on=False)

    def _switch_log(
        self, request: HttpRequest, rows: QuerySet[AccessToken], *, on: bool
    ) -> None:
        for row in rows:
            row.log_requests(on=on)
            self.log_change(request, row, f"Request log {'on' if on else 'off'}.")
        done = ngettext(
            "%(count)d token changed.", "%(count)d tokens changed.", len(rows)
        )
        messages.success(request, done % {"count": len(rows)})

    @admin.display(description=_("scopes"))
    def scopes_shown(self, token: AccessToken) -> str:
        return ", ".join(token.scopes)

    @admin.display(description=_("spent"))
    def spent(self, token: AccessToken) -> str:
        return describe_spending(token) or "–"

    @admin.display(description=_("spent by period"))
    def by_period(self, token: AccessToken) -> str:
        rows = token.balances.order_by("-pk")[:31]
        return "; ".join(f"{r.period}: {money(dollars(r.spent))}" for r in rows) or "–"
