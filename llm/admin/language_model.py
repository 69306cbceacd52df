from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from llm import capabilities
from llm.admin.bases import JSON_AS_OBJECT, switch_enabled
from llm.forms.fields import FullNameField
from llm.models import LanguageModel


@admin.register(LanguageModel)
class LanguageModelAdmin(admin.ModelAdmin):
    list_display = [
        "__str__",
        "provider",
        "name",
        "alias",
        "enabled",
        "is_default",
        "abilities",
        "context_window",
    ]
    list_filter = ["enabled", "is_default", "provider", "groups"]
    list_select_related = ["provider"]
    search_fields = ["name", "label", "alias", "provider__name"]
    actions = ["enable", "disable", "make_default"]
    filter_horizontal = ["groups", "fallbacks"]
    readonly_fields = ["created_at"]
    fieldsets = [
        (
            None,
            {"fields": ["provider", "name", "label", "alias", "enabled", "is_default"]},
        ),
        (
            _("What it can do"),
            {"fields": ["capabilities", "context_window", "max_output_tokens"]},
        ),
        (_("How it is asked"), {"fields": ["options", "fallbacks"]}),
        (_("What it costs, and who may use it"), {"fields": ["prices", "groups"]}),
        (None, {"fields": ["created_at"]}),
    ]
    formfield_overrides = JSON_AS_OBJECT

    def formfield_for_manytomany(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        if db_field.name == "fallbacks":
            kwargs["form_class"] = FullNameField
            kwargs["queryset"] = LanguageModel.objects.select_related("provider")
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def save_model(
        self, request: HttpRequest, obj: LanguageModel, form: Any, change: bool
    ) -> None:
        super().save_model(request, obj, form, change)
        for problem in capabilities.problems(obj.capabilities):
            self.message_user(request, problem, messages.WARNING)

    @admin.display(description=_("capabilities"))
    def abilities(self, obj: LanguageModel) -> str:
        return ", ".join(name for name, has in obj.capabilities.items() if has)

    @admin.action(description=_("Enable"), permissions=["change"])
    def enable(self, request: HttpRequest, rows: QuerySet[LanguageModel]) -> None:
        switch_enabled(self, request, rows, on=True)

    @admin.action(description=_("Disable"), permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[LanguageModel]) -> None:
        switch_enabled(self, request, rows, on=False)

    @admin.action(description=_("Make default"), permissions=["change"])
    def make_default(self, request: HttpRequest, rows: QuerySet[LanguageModel]) -> None:
        if len(rows) != 1:
            problem = _("Choose one model; there is one default.")
            self.message_user(request, problem, messages.ERROR)
            return
        model = rows[0]
        if why := model.why_unusable:
            self.message_user(
                request, f"{model} stays as it is: {why}.", messages.ERROR
            )
            return
        model.make_default()
        self.message_user(request, f"{model} is the default model.", messages.SUCCESS)
