"""The admin's page that probes a model of a provider, and shows what works."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from llm.admin.capability_source import FORGOTTEN
from llm.models import LanguageModel, ModelProbe, Provider
from llm.probing.findings import FEATURES, OUTDATED, Finding

REFRESH_SECONDS = 2


class NameField(forms.ModelChoiceField):
    """Models of one provider, by the provider's names."""

    def label_from_instance(self, obj: Any) -> str:
        return str(obj.name)


class ProbeForm(forms.Form):
    def __init__(self, provider: Provider, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        models = provider.models.order_by("-enabled", "-is_default", "name")
        self.fields["model"] = NameField(models, label=_("Model"), empty_label=None)


class ProbeMixin(admin.ModelAdmin):
    """Adds the page to the admin of providers. Who may change a provider may probe."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.probe_view)
        name = "llm_provider_probe"
        return [path("<path:object_id>/probe/", view, name=name), *super().get_urls()]

    def probe_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        provider = self.get_object(request, object_id)
        if provider is None:
            raise Http404
        if not self.has_change_permission(request, provider):
            raise PermissionDenied
        if "forget" in request.POST:
            return self._forget_findings(request, provider)
        chosen = request.GET.get("model")
        # With a number that no column holds, the first model is chosen.
        initial = {"model": chosen} if chosen and chosen.isdecimal() else {}
        form = ProbeForm(provider, request.POST or None, initial=initial)
        if request.method == "POST" and form.is_valid():
            return self._start_probe(request, provider, form.cleaned_data["model"])
        return self._show_probes(request, provider, form)

    def _start_probe(
        self, request: HttpRequest, provider: Provider, model: LanguageModel
    ) -> HttpResponse:
        # Imported here: at the top every management command would load the HTTP
        # libraries.
        from llm.probing.jobs import ProbeRefused, start_probe

        url = reverse(f"{self.admin_site.name}:llm_provider_probe", args=[provider.pk])
        try:
            row = start_probe(model, request.user)
        except ProbeRefused as exc:
            self.message_user(request, str(exc), messages.ERROR)
            return redirect(f"{url}?model={model.pk}")
        self.log_change(request, provider, f"Probed the model {model.name}.")
        return redirect(f"{url}?model={model.pk}&probe={row.pk}")

    def _forget_findings(
        self, request: HttpRequest, provider: Provider
    ) -> HttpResponse:
        """Of all the provider's models."""
        if not request.user.has_perm("llm.change_languagemodel"):
            raise PermissionDenied
        rows = list(_probed_models(provider))
        for model in rows:
            model.forget_findings()
            self.log_change(request, model, FORGOTTEN)
        count = len(rows)
        text = ngettext(
            "What probes found of %(count)d model was forgotten.",
            "What probes found of %(count)d models was forgotten.",
            count,
        )
        self.message_user(request, text % {"count": count}, messages.SUCCESS)
        name = f"{self.admin_site.name}:llm_provider_probe"
        return redirect(reverse(name, args=[provider.pk]))

    def _show_probes(
        self, request: HttpRequest, provider: Provider, form: ProbeForm
    ) -> HttpResponse:
        rows = ModelProbe.objects.filter(model__provider=provider)
        rows = rows.select_related("model__provider", "started_by")
        earlier = list(rows[:10])
        wanted = request.GET.get("probe", "")
        shown = next((row for row in earlier if str(row.pk) == wanted), None)
        shown = shown or next(iter(earlier), None)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Probe %(provider)s") % {"provider": provider},
            "opts": self.opts,
            "row": provider,
            "form": form,
            "has_models": provider.models.exists(),
            "probe": shown,
            "may_forget": request.user.has_perm("llm.change_languagemodel")
            and _probed_models(provider).exists(),
            "findings": findings_of(shown) if shown else [],
            "overridden": _overridden(shown) if shown else [],
            "feature_count": len(FEATURES),
            "outdated": OUTDATED if shown and shown.is_outdated else "",
            "earlier": [row for row in earlier if row != shown],
            "refresh": REFRESH_SECONDS if shown and shown.is_running else None,
        }
        return TemplateResponse(request, "admin/llm/provider/probe.html", context)


def _probed_models(provider: Provider) -> QuerySet[LanguageModel]:
    return provider.models.exclude(probed_capabilities=None).order_by("pk")


def findings_of(row: ModelProbe) -> list[Finding]:
    return [Finding(**finding) for finding in row.findings]


def _overridden(row: ModelProbe) -> list[str]:
    """The capabilities that the probe found, and staff have set to something else."""
    stored = row.model.capabilities
    set_by_staff = {k: v for k, v in stored.items() if not row.model.is_listed(k)}
    found: dict[str, bool] = {}
    for finding in findings_of(row):
        found |= finding.capabilities
    return [
        name
        for name, value in found.items()
        if name in set_by_staff and set_by_staff[name] != value
    ]
