"""Admin of language models: capabilities, options, prices, fallbacks."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

from llm import capabilities
from llm.admin.bases import JSON_AS_OBJECT
from llm.admin.capability_source import CapabilityMixin
from llm.admin.fallback_path import FallbackPathMixin
from llm.admin.model_actions import ModelActionsMixin
from llm.admin.model_price import ModelPriceInline, describe_price, save_prices
from llm.admin.prompt_test import PromptTestMixin
from llm.admin.used_by import UsedByAdmin
from llm.forms.fields import (
    FullNamesInOrderField,
    OneFullNameField,
    SelectInOrder,
    SwitchesForm,
)
from llm.models import LanguageModel, ModelPrice, ModelProbe
from llm.probing.findings import OUTDATED


class LanguageModelForm(SwitchesForm):
    """Shows the fallbacks in the order in which calls try them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.initial["fallbacks"] = self.instance.fallback_keys


@admin.register(LanguageModel)
class LanguageModelAdmin(
    ModelActionsMixin, CapabilityMixin, FallbackPathMixin, PromptTestMixin, UsedByAdmin
):
    parts = (ModelPrice, ModelProbe)
    list_display = [
        "__str__",
        "provider",
        "name",
        "alias",
        "enabled",
        "is_default",
        "retires_at",
        "abilities",
        "context_window",
    ]
    list_filter = ["enabled", "is_default", "provider", "groups"]
    list_select_related = ["provider"]
    search_fields = ["name", "label", "alias", "provider__name"]
    actions = [
        "enable",
        "disable",
        "make_default",
        "set_aliases",
        "change_groups",
        "set_retirement",
        "test_prompt",
    ]
    form = LanguageModelForm
    filter_horizontal = ["groups", "fallbacks"]
    readonly_fields = ["created_at", "probed", "fallback_path", "current_price"]
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "provider",
                    "name",
                    "label",
                    "description",
                    "alias",
                    "enabled",
                    "is_default",
                ]
            },
        ),
        (
            _("Capabilities"),
            {
                "fields": [
                    "capabilities",
                    "probed",
                    "context_window",
                    "max_output_tokens",
                ]
            },
        ),
        (_("Requests"), {"fields": ["options", "fallbacks", "fallback_path"]}),
        (_("Prices and access"), {"fields": ["current_price", "prices", "groups"]}),
        (_("Retirement"), {"fields": ["retires_at", "replacement"]}),
        (None, {"fields": ["created_at"]}),
    ]
    formfield_overrides = JSON_AS_OBJECT
    inlines = [ModelPriceInline]

    class Media:
        css = {"all": ["css/tool-admin.css"]}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Prices without a date are for who may add those with one."""
        fields = [*super().get_readonly_fields(request, obj)]
        may_price = request.user.has_perm("llm.add_modelprice")
        return fields if may_price else [*fields, "prices"]

    def formfield_for_manytomany(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        if db_field.name == "fallbacks":
            kwargs["form_class"] = FullNamesInOrderField
            kwargs["widget"] = SelectInOrder(db_field.verbose_name, is_stacked=False)
            kwargs["help_text"] = _(
                "Called in this order when the model fails. The one chosen last is the"
                " last: to move one, remove it and choose it again."
            )
            kwargs["queryset"] = LanguageModel.objects.select_related("provider")
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def formfield_for_foreignkey(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        if db_field.name == "replacement":
            kwargs["form_class"] = OneFullNameField
            kwargs["queryset"] = LanguageModel.objects.select_related("provider")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(
        self, request: HttpRequest, obj: LanguageModel, form: Any, change: bool
    ) -> None:
        before = LanguageModel.objects.filter(pk=obj.pk).first() if change else None
        obj.note_overrides(before.overrides if before else {})
        super().save_model(request, obj, form, change)
        for problem in capabilities.problems(obj.capabilities):
            self.message_user(request, problem, messages.WARNING)

    def save_related(
        self, request: HttpRequest, form: Any, formsets: Any, change: bool
    ) -> None:
        if "fallbacks" in form.cleaned_data:
            form.instance.set_fallbacks(form.cleaned_data["fallbacks"])
        super().save_related(request, form, formsets, change)

    def save_formset(
        self, request: HttpRequest, form: Any, formset: Any, change: bool
    ) -> None:
        if formset.model is ModelPrice:
            save_prices(request, formset)
        else:
            super().save_formset(request, form, formset, change)

    @admin.display(description=_("price now"))
    def current_price(self, obj: LanguageModel) -> str:
        return describe_price(obj) if obj.pk else "–"

    @admin.display(description=_("probed"))
    def probed(self, obj: LanguageModel) -> str:
        if obj.probed_at is None:
            return "–"
        yes, no, overridden = _("yes"), _("no"), _("overridden")
        values = ", ".join(
            f"{name}: {yes if value else no}"
            + (f" ({overridden})" if name in obj.capabilities else "")
            for name, value in (obj.probed_capabilities or {}).items()
        )
        at = date_format(timezone.localtime(obj.probed_at), "DATETIME_FORMAT")
        if obj.is_probe_outdated:
            return f"{values} ({at}). {OUTDATED}"
        return f"{values} ({at})"

    @admin.display(description=_("capabilities"))
    def abilities(self, obj: LanguageModel) -> str:
        return ", ".join(name for name, has in obj.capabilities.items() if has)
