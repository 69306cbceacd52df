"""Admin of limits of use, of temporary raises, and a trial of a user's next request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from conversations.access.limits.admission import LimitLeft, find_limits_left
from conversations.access.limits.refusal_texts import describe_amount
from conversations.models import LimitRaise, LimitWarning, UsageLimit
from conversations.models.limits.usage_limit import (
    LimitedAmounts,
    LimitPeriod,
    period_name,
)
from llm.admin import LargeTableAdmin
from llm.models import LanguageModel

_AMOUNTS = ("requests", "tokens", "cost", "size")
_SHOWN = tuple(f"shown_{name}" for name in _AMOUNTS)


class _AmountsAdmin(LargeTableAdmin):
    """Amounts in lists as people read them."""

    autocomplete_fields = ["user", "group"]

    def formfield_for_foreignkey(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        if db_field.name == "model":  # whose names contain those of providers
            kwargs["queryset"] = LanguageModel.objects.select_related("provider")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    @admin.display(description=_("requests"))
    def shown_requests(self, row: LimitedAmounts) -> str:
        return _in_words("requests", row.requests)

    @admin.display(description=_("tokens"))
    def shown_tokens(self, row: LimitedAmounts) -> str:
        return _in_words("tokens", row.tokens)

    @admin.display(description=_("cost"))
    def shown_cost(self, row: LimitedAmounts) -> str:
        return _in_words("cost", row.cost_nanos)

    @admin.display(description=_("data"))
    def shown_size(self, row: LimitedAmounts) -> str:
        return _in_words("size", row.size)


def _in_words(measure: str, amount: int | None) -> str:
    return "–" if amount is None else describe_amount(measure, amount)


class RunningFilter(admin.SimpleListFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("running", _("running")), ("over", _("over"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        is_running = Q(ends_at__gt=timezone.now())
        match self.value():
            case "running":
                return queryset.filter(is_running)
            case "over":
                return queryset.exclude(is_running)
        return queryset


@admin.register(UsageLimit)
class UsageLimitAdmin(_AmountsAdmin):
    list_display = ["shown_subject", "model", "period", *_SHOWN, "warn_at", "is_shared"]
    list_filter = ["period", "is_shared"]
    list_select_related = ["user", "group", "token", "model__provider"]
    change_list_template = "admin/conversations/usagelimit/change_list.html"
    search_fields = ["=user__username", "=group__name", "=token__label"]
    search_help_text = _("The name of a user or group, or the label of a token.")
    raw_id_fields = ["token"]
    readonly_fields = ["left"]
    fieldsets = [
        (
            None,
            {"fields": ["user", "group", "token", "is_shared", "model", "period"]},
        ),
        (
            _("At most"),
            {
                "fields": [*_AMOUNTS, "warn_at"],
                "description": _(
                    "A user's own limit comes before those of groups, and a group's"
                    " before everybody's, for each amount by itself. What a group"
                    " shares, and a token's limit, apply besides."
                ),
            },
        ),
        (_("What the user has left"), {"fields": ["left"]}),
    ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        extra_context = {**(extra_context or {}), "warnings": list_current_warnings()}
        return super().changelist_view(request, extra_context)

    class Media:
        css = {"all": ["css/tool-admin.css"]}

    @admin.display(description=_("for"))
    def shown_subject(self, row: UsageLimit) -> str:
        return row.subject

    @admin.display(description=_("now"))
    def left(self, row: UsageLimit) -> SafeString | str:
        user = row.user or (row.token and row.token.user)
        if not row.pk or user is None:
            return gettext("A limit of one user or token shows it.")
        found = find_limits_left(user.pk, row.token)
        return format_html(
            "<ul>{}</ul>", format_html_join("", "<li>{} ({})</li>", map(_line, found))
        )


MAX_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class ShownWarning:
    row: LimitWarning

    @property
    def subject(self) -> str:
        balance = self.row.balance
        return str(balance.user or balance.group or balance.token)

    @property
    def limit(self) -> str:
        return describe_amount(self.row.measure, self.row.amount)

    @property
    def state(self) -> str:
        if self.row.percent >= 100:
            return gettext("reached")
        return gettext("%(percent)s %% used") % {"percent": self.row.percent}


def list_current_warnings() -> list[ShownWarning]:
    """The warnings of the current periods, newest first, by one query."""
    related = ("user", "group", "token", "model__provider")
    rows = LimitWarning.objects.select_related(*(f"balance__{r}" for r in related))
    current = map(period_name, LimitPeriod.values)
    rows = rows.filter(balance__period__in=list(current))
    return [ShownWarning(row) for row in rows[:MAX_WARNINGS]]


def _line(row: LimitLeft) -> tuple[str, str]:
    return row.words, row.kind_label


@admin.register(LimitRaise)
class LimitRaiseAdmin(_AmountsAdmin):
    """A raise is added and ended early, never rewritten: it stands for a decision."""

    ordering = ["-pk"]

    list_display = ["__str__", *_SHOWN, "reason", "granted_by", "ends_at"]
    list_filter = [RunningFilter, "period"]
    list_select_related = ["user", "group", "granted_by", "model__provider"]
    search_fields = ["=user__username", "=group__name"]
    search_help_text = _("The name of a user or group.")
    fields = [
        *("user", "group", "model", "period", *_AMOUNTS, "reason", "ends_at"),
        *("granted_by", "created_at"),
    ]
    readonly_fields = ["granted_by", "created_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if obj is None:
            return ["granted_by", "created_at"]
        names = ["user", "group", "model", "period", *_AMOUNTS, "reason"]
        return [*names, "granted_by", "created_at"]

    def save_model(
        self, request: HttpRequest, obj: LimitRaise, form: ModelForm, change: bool
    ) -> None:
        if not change:
            obj.granted_by_id = request.user.pk
        super().save_model(request, obj, form, change)
