"""Admin of providers with their keys and models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db import models
from django.db.models import Count, QuerySet
from django.forms import TextInput
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from llm.admin.bases import (
    JSON_AS_OBJECT,
    SecretFormAdmin,
    describe_sending,
    note_author,
)
from llm.admin.bulk_actions import switch_enabled
from llm.admin.key_actions import MAX_TESTED
from llm.admin.model_sync import ModelSyncMixin
from llm.admin.probe import ProbeMixin
from llm.admin.provider_status import statuses_of
from llm.admin.provider_use import recent_use
from llm.admin.used_by import Use, UsedByAdmin, count_uses, references_to
from llm.error_texts.for_staff import describe_failure, describe_reason
from llm.error_texts.staff_instructions import instruct
from llm.errors import LLMError
from llm.forms.fields import ApiKeyForm, SwitchesForm
from llm.forms.provider import QUIRK_FIELDS, ProviderForm
from llm.models import ApiKey, LanguageModel, ModelProbe, Provider
from llm.pricing.caller import Caller
from llm.providers import all_providers

#: What is not counted among the users of a model: itself as a fallback, its probes.
MODEL_PARTS = (LanguageModel, ModelProbe)
VIEW_USAGE = "llm.view_usage"
MAX_INLINE_MODELS = 50  # rows; Django rejects a form with too many fields

NARROW: Mapping[type[models.Field], Mapping[str, Any]] = {
    models.CharField: {"widget": TextInput({"size": 18})}
}


class HostToCall(HttpResponse):
    """Stands for the answer until the transaction that saves the form is over. It must
    not wait for a host: meanwhile nobody else could write."""

    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self.provider = provider


class ApiKeyInline(admin.TabularInline):
    model = ApiKey
    form = ApiKeyForm
    fields = [
        "label",
        "secret",
        "state",
        "weight",
        "expires_at",
        "is_sent",
        "last_used_at",
        "last_error_shown",
    ]
    show_change_link = True
    readonly_fields = ["is_sent", "last_used_at", "last_error_shown"]
    formfield_overrides = NARROW
    verbose_name_plural = _("API keys")

    @admin.display(description=_("sent"))
    def is_sent(self, obj: ApiKey) -> str:
        return describe_sending(obj)

    @admin.display(description=_("last error"))
    def last_error_shown(self, obj: ApiKey) -> str:
        return describe_reason(obj.last_error)

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        return 0 if obj else 1


class LanguageModelInline(admin.TabularInline):
    model = LanguageModel
    form = SwitchesForm
    fields = ["name", "label", "alias", "enabled", "is_default", "context_window"]
    formfield_overrides = NARROW
    show_change_link = True

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        return 0 if obj else 1


class ProviderList(ChangeList):
    """Finds the status of all its rows at once."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows = list(self.result_list)
        statuses = statuses_of(rows)
        for row in rows:
            row.known_status = statuses[row.pk]
        self.result_list = rows


@admin.register(Provider)
class ProviderAdmin(UsedByAdmin, ModelSyncMixin, ProbeMixin, SecretFormAdmin):
    form = ProviderForm
    delete_confirmation_template = "admin/llm/provider/delete_confirmation.html"
    readonly_fields = ["status", "use"]
    list_display = [
        "name",
        "status",
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
        (
            None,
            {
                "fields": [
                    "status",
                    "use",
                    "name",
                    "kind",
                    "enabled",
                    "accepts_own_keys",
                ]
            },
        ),
        (
            _("Address"),
            {"fields": ["base_url", "allow_private_network", "codec", "options"]},
        ),
        (
            _("Connection"),
            {
                "classes": ["collapse"],
                "fields": [
                    "proxy_url",
                    "ca_certificates",
                    "secret",
                    "connect_timeout",
                    "first_byte_timeout",
                    "idle_timeout",
                    "total_timeout",
                ],
            },
        ),
        (
            _("How it differs from other hosts of Chat Completions"),
            {"classes": ["collapse"], "fields": QUIRK_FIELDS},
        ),
        (_("Inspection"), {"fields": ["keeps_exchanges"]}),
    ]
    formfield_overrides = JSON_AS_OBJECT

    class Media:
        css = {"all": ["css/tool-admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Provider]:
        rows: QuerySet[Provider] = super().get_queryset(request)
        return rows.prefetch_related("keys").annotate(models_there=Count("models"))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Without the fields of the form alone for those who may only look."""
        fieldsets = super().get_fieldsets(request, obj)
        allowed = obj is None or self.has_change_permission(request, obj)
        hidden = set() if allowed else {"secret", *QUIRK_FIELDS}
        hidden |= {"status", "use"} if obj is None else set()
        if not request.user.has_perm(VIEW_USAGE):
            hidden.add("use")
        shown = [
            (name, {**each, "fields": [f for f in each["fields"] if f not in hidden]})
            for name, each in fieldsets
        ]
        return [each for each in shown if each[1]["fields"]]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        return ProviderList

    def save_formset(
        self, request: HttpRequest, form: Any, formset: Any, change: bool
    ) -> None:
        if formset.model is ApiKey:
            for each in formset.forms:
                note_author(request, each.instance, each)
        super().save_formset(request, form, formset, change)

    def find_uses(self, rows: Sequence[Provider]) -> list[Use]:
        """What refers to the providers, their keys and their models."""
        references = [
            (LanguageModel, "provider"),
            (ApiKey, "provider"),
            *(
                (model, f"{path}__provider")
                for model, path in references_to(LanguageModel, MODEL_PARTS)
            ),
        ]
        return count_uses(references, [row.pk for row in rows])

    @admin.display(description=_("status"))
    def status(self, obj: Any) -> str:
        known = getattr(obj, "known_status", None) or statuses_of([obj])[obj.pk]
        html: str = known.to_html()
        return html

    @admin.display(description=_("use"))
    def use(self, obj: Provider) -> str:
        return recent_use(obj)

    def formfield_for_dbfield(
        self, db_field: Any, request: HttpRequest, **kwargs: Any
    ) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "options" and field:
            field.help_text = f"{field.help_text} {_describe_options()}"
        return field

    def get_inlines(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        if obj and obj.models_there > MAX_INLINE_MODELS:
            return [ApiKeyInline]
        return [ApiKeyInline, LanguageModelInline]

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        response = super().changeform_view(request, *args, **kwargs)
        if isinstance(response, HostToCall):
            return self._call_host(request, response.provider)
        return response

    def response_add(
        self, request: HttpRequest, obj: Provider, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        if self._is_to_be_called(request, obj):
            return HostToCall(obj)
        return super().response_add(request, obj, *args, **kwargs)

    def response_change(self, request: HttpRequest, obj: Provider) -> HttpResponse:
        if self._is_to_be_called(request, obj):
            return HostToCall(obj)
        return super().response_change(request, obj)

    def _is_to_be_called(self, request: HttpRequest, obj: Provider) -> bool:
        may_sync = self.has_sync_permission(request)
        wanted = "_test" in request.POST or ("_sync" in request.POST and may_sync)
        return wanted and self.has_change_permission(request, obj)

    def _call_host(self, request: HttpRequest, obj: Provider) -> HttpResponse:
        """Handle "Save and test connection" and "Save and choose models"."""
        if "_sync" in request.POST and self.has_sync_permission(request):
            shown = self.sync_models(request, Provider.objects.filter(pk=obj.pk))
        else:
            shown = self._test(request, obj)
        return shown or redirect(f"{self.admin_site.name}:llm_provider_change", obj.pk)

    @admin.display(description=_("kind"), ordering="kind")
    def kind_label(self, obj: Provider) -> str:
        return obj.host.label if obj.host else obj.kind

    def get_list_display(self, request: HttpRequest) -> Any:
        """The number of models is a link for who may see them."""
        if request.user.has_perm("llm.view_languagemodel"):
            return self.list_display
        plain = {"model_count": "plain_model_count"}
        return [plain.get(str(name), name) for name in self.list_display]

    @admin.display(description=_("models"), ordering="models_there")
    def plain_model_count(self, obj: Any) -> int:
        return int(obj.models_there)

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
            return instruct(why)
        keys = obj.keys.all()
        errors = [describe_reason(key.last_error) for key in keys if key.last_error]
        return "; ".join([*obj.secrets_not_sent, *errors])

    @admin.action(description=_("Enable"), permissions=["change"])
    def enable(self, request: HttpRequest, rows: QuerySet[Provider]) -> None:
        switch_enabled(self, request, rows, on=True)

    @admin.action(description=_("Disable"), permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[Provider]) -> None:
        switch_enabled(self, request, rows, on=False)

    @admin.action(description=_("Test connection"), permissions=["change"])
    def test_connection(self, request: HttpRequest, rows: QuerySet[Provider]) -> None:
        found = list(rows[: MAX_TESTED + 1])
        if len(found) > MAX_TESTED:
            text = _("Select at most %(count)d providers: each waits for its host.")
            self.message_user(request, text % {"count": MAX_TESTED}, messages.ERROR)
            return
        for provider in found:
            self._test(request, provider)

    def _test(
        self, request: HttpRequest, provider: Provider, added: str = ""
    ) -> HttpResponse | None:
        """Test the connection, and make sure that users can choose a model.

        Messages say what staff still have to do. `added`: the name of a model that is
        stored only because it is to be tested.
        """
        # Imported here: at the top every management command would load the HTTP
        # libraries.
        from llm.sync.key_check import model_to_ask, probe

        try:
            tested_model = model_to_ask(provider)
            findings = probe(provider, Caller(user_id=request.user.pk))
        except LLMError as exc:
            return self._report_failed_test(request, provider, exc)
        for finding in findings:
            named = f"{provider}, key {finding.key}" if finding.key else str(provider)
            level = messages.SUCCESS if finding.works else messages.ERROR
            self.message_user(request, f"{named}: {finding.text}", level)
        if any(finding.works for finding in findings):
            is_new = tested_model.pk is None or tested_model.name == added
            self._ensure_enabled_model(request, provider, tested_model, is_new)
        return None

    def _report_failed_test(
        self, request: HttpRequest, provider: Provider, exc: LLMError
    ) -> HttpResponse | None:
        """Report the error; for a new provider without models show its model list."""
        is_new = provider.why_unusable == "" and not provider.models.exists()
        if not (
            is_new and "_test" in request.POST and self.has_sync_permission(request)
        ):
            why = describe_failure(exc)
            self.message_user(request, f"{provider}: {why}", messages.ERROR)
            return None
        if self._add_only_model(request, provider):
            return None
        shown = self.sync_models(request, Provider.objects.filter(pk=provider.pk))
        if shown is not None:
            text = _(
                "The connection to %(provider)s works. Choose the models that people"
                " may use, and"
                " switch them on."
            )
            self.message_user(request, text % {"provider": provider}, messages.INFO)
        return shown

    def _add_only_model(self, request: HttpRequest, provider: Provider) -> bool:
        """Whether the provider lists just one model, so that nothing is to choose. It
        is switched on if its test succeeds."""
        from llm.sync import model_list

        try:
            comparison = self.compare_models(request, provider)
        except LLMError:
            return False  # the list that is shown instead reports it
        if len(comparison.new) != 1:
            return False
        name = comparison.new[0].name
        model_list.apply(provider, comparison, new=[name])
        self._test(request, provider, added=name)
        return True

    def _ensure_enabled_model(
        self,
        request: HttpRequest,
        provider: Provider,
        tested_model: LanguageModel,
        is_new: bool,
    ) -> None:
        if provider.models.filter(enabled=True).exists():
            return
        named = {"model": tested_model.name, "provider": provider}
        if is_new and self.has_sync_permission(request):
            tested_model.enabled = True
            tested_model.save()
            self.log_change(request, provider, f"Added the model {tested_model.name}")
            text = _(
                "The model %(model)s was added and switched on: people can choose it in"
                " the chat. “Save and choose models” adds others."
            )
            self.message_user(request, text % named, messages.SUCCESS)
            self.replace_demo_as_default(request, provider)
            return
        text = _(
            "No model of %(provider)s is switched on, so nobody can choose one in the"
            " chat. Tick “enabled” at a model below, or press “Save and choose models”."
        )
        self.message_user(request, text % named, messages.WARNING)


def _describe_options() -> str:
    """A sentence for each kind of provider that has options besides headers."""
    return " ".join(
        f"{host.label}: "
        + ", ".join(f"{option.name} ({option.wanted})" for option in host.options)
        + "."
        for host in all_providers().values()
        if host.options
    )
