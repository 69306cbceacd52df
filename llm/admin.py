from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import models
from django.db.models import Count, QuerySet
from django.forms import Textarea, TextInput
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from llm import capabilities
from llm.error_reports import hide_secrets
from llm.errors import LLMError
from llm.forms import ApiKeyForm, FullNameField, ObjectField
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.providers import all_providers

if TYPE_CHECKING:
    from llm.model_sync import Comparison

MAX_INLINE_MODELS = 50  # rows; a form of many more is refused by Django as too large
MAX_COUNTED = 10_000  # rows of a list; nobody pages further

JSON_AS_OBJECT: Mapping[type[models.Field], Mapping[str, Any]] = {
    models.JSONField: {
        "form_class": ObjectField,
        "widget": Textarea({"rows": 5, "cols": 70, "spellcheck": "false"}),
    }
}


NARROW: Mapping[type[models.Field], Mapping[str, Any]] = {
    models.CharField: {"widget": TextInput({"size": 18})}
}


class BoundedPaginator(Paginator):
    """Does not count millions of rows for a list of a hundred."""

    @cached_property
    def count(self) -> int:
        rows: QuerySet = self.object_list  # type: ignore[assignment]
        return rows[:MAX_COUNTED].count()


class ReadOnlyAdmin(admin.ModelAdmin):
    """For rows that the program writes, and there may be many of them."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    actions = None

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class SecretFormAdmin(admin.ModelAdmin):
    """For forms that a secret is typed into."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        hide_secrets(request)
        return super().changeform_view(request, *args, **kwargs)


class ApiKeyInline(admin.TabularInline):
    model = ApiKey
    form = ApiKeyForm
    fields = [
        "label",
        "secret",
        "state",
        "weight",
        "last_used_at",
        "last_error",
    ]
    readonly_fields = ["last_used_at", "last_error"]
    formfield_overrides = NARROW
    verbose_name_plural = _("API keys")

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        return 0 if obj else 1


class LanguageModelInline(admin.TabularInline):
    model = LanguageModel
    fields = ["name", "label", "alias", "enabled", "is_default", "context_window"]
    formfield_overrides = NARROW
    show_change_link = True

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        return 0 if obj else 1


@admin.register(Provider)
class ProviderAdmin(SecretFormAdmin):
    list_display = [
        "name",
        "kind_label",
        "address",
        "enabled",
        "model_count",
        "key_hints",
        "last_error",
    ]
    list_filter = ["enabled", "kind"]
    search_fields = ["name", "base_url"]
    actions = ["enable", "disable", "test_connection", "sync_models"]
    fieldsets = [
        (None, {"fields": ["name", "kind", "enabled"]}),
        (
            _("Address"),
            {"fields": ["base_url", "allow_private_network", "codec", "options"]},
        ),
    ]
    formfield_overrides = JSON_AS_OBJECT

    def get_queryset(self, request: HttpRequest) -> QuerySet[Provider]:
        rows: QuerySet[Provider] = super().get_queryset(request)
        return rows.prefetch_related("keys").annotate(models_there=Count("models"))

    def formfield_for_dbfield(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "options" and field:
            field.help_text = f"{field.help_text} {_known_options()}"
        return field

    def get_inlines(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        if obj and obj.models_there > MAX_INLINE_MODELS:
            return [ApiKeyInline]
        return [ApiKeyInline, LanguageModelInline]

    def response_add(
        self, request: HttpRequest, obj: Provider, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        return self._response(request, obj) or super().response_add(
            request, obj, *args, **kwargs
        )

    def response_change(self, request: HttpRequest, obj: Provider) -> HttpResponse:
        return self._response(request, obj) or super().response_change(request, obj)

    def _response(self, request: HttpRequest, obj: Provider) -> HttpResponse | None:
        """For the button "Save and test connection"."""
        if "_test" not in request.POST or not self.has_change_permission(request, obj):
            return None
        self._test(request, obj)
        return redirect(f"{self.admin_site.name}:llm_provider_change", obj.pk)

    @admin.display(description=_("kind"), ordering="kind")
    def kind_label(self, obj: Provider) -> str:
        return obj.host.label if obj.host else obj.kind

    @admin.display(description=_("models"), ordering="models_there")
    def model_count(self, obj: Any) -> str:
        url = reverse(f"{self.admin_site.name}:llm_languagemodel_changelist")
        return format_html(
            '<a href="{}?provider__id__exact={}">{}</a>', url, obj.pk, obj.models_there
        )

    @admin.display(description=_("keys"))
    def key_hints(self, obj: Provider) -> str:
        return ", ".join(
            f"{key} ({key.get_state_display()})"
            if key.state != ApiKey.State.ACTIVE
            else str(key)
            for key in obj.keys.all()
        )

    @admin.display(description=_("last error"))
    def last_error(self, obj: Provider) -> str:
        if why := obj.why_unusable:
            return why
        return "; ".join(key.last_error for key in obj.keys.all() if key.last_error)

    @admin.action(description=_("Enable"), permissions=["change"])
    def enable(self, request: HttpRequest, rows: QuerySet[Provider]) -> None:
        _switch(self, request, rows, on=True)

    @admin.action(description=_("Disable"), permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[Provider]) -> None:
        _switch(self, request, rows, on=False)

    @admin.action(description=_("Test connection"), permissions=["change"])
    def test_connection(self, request: HttpRequest, rows: QuerySet[Provider]) -> None:
        for provider in rows:
            self._test(request, provider)

    @admin.action(description=_("Sync models"), permissions=["sync"])
    def sync_models(
        self, request: HttpRequest, rows: QuerySet[Provider]
    ) -> HttpResponse | None:
        """Shows what the provider's list tells; called again, does what was chosen."""
        # Not at the top, for the same reason as the probe.
        from llm import model_sync

        if len(rows) != 1:
            problem = _("Choose one provider; each has a list of its own.")
            self.message_user(request, problem, messages.ERROR)
            return None
        provider = rows[0]
        try:
            comparison = model_sync.compare(provider)
        except LLMError as exc:
            self.message_user(request, f"{provider}: {exc}", messages.ERROR)
            return None
        if "_apply" in request.POST or "_apply_all" in request.POST:
            self._apply(request, provider, comparison)
            return None
        return self._offer(request, provider, comparison)

    def has_sync_permission(self, request: HttpRequest) -> bool:
        needed = ["llm.add_languagemodel", "llm.change_languagemodel"]
        return bool(request.user.has_perms(needed))

    def _offer(
        self, request: HttpRequest, provider: Provider, comparison: Comparison
    ) -> HttpResponse | None:
        if not comparison:
            told = _("%(provider)s lists nothing that is not known here.")
            self.message_user(request, told % {"provider": provider}, messages.INFO)
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Models of %(provider)s") % {"provider": provider},
            "opts": self.opts,
            "provider": provider,
            "comparison": comparison,
        }
        return TemplateResponse(request, "admin/llm/provider/sync_models.html", context)

    def _apply(
        self, request: HttpRequest, provider: Provider, comparison: Comparison
    ) -> None:
        from llm import model_sync

        if "_apply_all" in request.POST:
            chosen = comparison.names()
        else:
            kinds = ("new", "changed", "gone")
            chosen = {kind: request.POST.getlist(kind) for kind in kinds}
        done = model_sync.apply(provider, comparison, **chosen)
        counts = {
            "added": done.added,
            "changed": done.changed,
            "off": done.switched_off,
        }
        text = _("%(added)d added, %(changed)d changed, %(off)d switched off.") % counts
        self.log_change(request, provider, f"Synced models: {text}")
        self.message_user(request, text, messages.SUCCESS)

    def _test(self, request: HttpRequest, provider: Provider) -> None:
        # Not at the top: every management command would wait for the HTTP libraries.
        from llm.probe import probe

        try:
            findings = probe(provider)
        except LLMError as exc:
            self.message_user(request, f"{provider}: {exc}", messages.ERROR)
            return
        for finding in findings:
            named = f"{provider}, key {finding.key}" if finding.key else str(provider)
            level = messages.SUCCESS if finding.works else messages.ERROR
            self.message_user(request, f"{named}: {finding.text}", level)


@admin.register(ApiKey)
class ApiKeyAdmin(SecretFormAdmin):
    form = ApiKeyForm
    list_display = [
        "label",
        "provider",
        "hint",
        "state",
        "weight",
        "rest_until",
        "last_used_at",
        "last_error",
    ]
    list_filter = ["state", "provider"]
    list_select_related = ["provider"]
    search_fields = ["label", "hint", "provider__name"]
    readonly_fields = ["hint", "last_used_at", "last_error", "created_at"]
    fieldsets = [
        (None, {"fields": ["provider", "label", "secret", "hint"]}),
        (_("Use"), {"fields": ["state", "rest_until", "weight"]}),
        (_("Seen"), {"fields": ["last_used_at", "last_error", "created_at"]}),
    ]


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
        _switch(self, request, rows, on=True)

    @admin.action(description=_("Disable"), permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[LanguageModel]) -> None:
        _switch(self, request, rows, on=False)

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


@admin.register(ModelCall)
class ModelCallAdmin(ReadOnlyAdmin):
    list_display = [
        "created_at",
        "model_name",
        "provider_name",
        "status",
        "tokens",
        "cost_shown",
        "first_delta",
        "whole",
        "error_code",
    ]
    # The names of providers come from their own table; this one may have millions.
    list_filter = ["status", "model__provider", "created_at"]
    list_select_related = ["model", "key"]
    search_fields = ["turn_id__exact", "request_id__exact"]
    search_help_text = _("The whole id of a turn, or of the provider's request.")
    fieldsets = [
        (
            None,
            {
                "fields": [
                    "created_at",
                    "status",
                    "finish_reason",
                    "turn_id",
                    "step",
                    "attempt",
                    "degraded",
                ]
            },
        ),
        (
            _("Who answered"),
            {
                "fields": [
                    "provider_name",
                    "model_name",
                    "model",
                    "key",
                    "request_id",
                    "response_id",
                ]
            },
        ),
        (
            _("Tokens and time"),
            {
                "fields": [
                    "input_tokens",
                    "cached_tokens",
                    "cache_write_tokens",
                    "output_tokens",
                    "reasoning_tokens",
                    "cost_shown",
                    "first_delta",
                    "whole",
                ]
            },
        ),
        (_("Error"), {"fields": ["http_status", "error_code", "error_detail"]}),
    ]

    @admin.display(description=_("tokens in → out"))
    def tokens(self, obj: ModelCall) -> str:
        counts = (obj.input_tokens, obj.output_tokens)
        return " → ".join("–" if count is None else str(count) for count in counts)

    @admin.display(description=_("cost"))
    def cost_shown(self, obj: ModelCall) -> str:
        return "–" if obj.cost is None else f"${obj.cost:.6f}"

    @admin.display(description=_("first delta"))
    def first_delta(self, obj: ModelCall) -> str:
        return _seconds(obj.ttft)

    @admin.display(description=_("latency"))
    def whole(self, obj: ModelCall) -> str:
        return _seconds(obj.latency)


def _known_options() -> str:
    """What some kinds of providers know besides headers, in a sentence each."""
    return " ".join(
        f"{host.label}: "
        + ", ".join(f"{option.name} ({option.wanted})" for option in host.options)
        + "."
        for host in all_providers().values()
        if host.options
    )


def _seconds(duration: float | None) -> str:
    return "–" if duration is None else f"{duration:.2f} s"


def _switch(
    model_admin: admin.ModelAdmin, request: HttpRequest, rows: QuerySet, *, on: bool
) -> None:
    count = rows.exclude(enabled=on).update(enabled=on)
    text = _("%(count)d switched on.") if on else _("%(count)d switched off.")
    model_admin.message_user(request, text % {"count": count}, messages.SUCCESS)


admin.site.site_header = "Parley"
admin.site.site_title = "Parley"
admin.site.index_title = _("Administration")
