"""The admin's page of a model's capabilities: where each comes from, and overrides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from llm import capabilities
from llm.capabilities import FIELD_NAMES, LIMITS, capabilities_of
from llm.forms.fields import is_storable_json
from llm.models import LanguageModel
from llm.probing.findings import OUTDATED

Source = Literal["overridden", "listed", "probed", "bundled", "unknown"]
SOURCES: Mapping[Source, Any] = {
    "overridden": gettext_lazy("overridden by staff"),
    "listed": gettext_lazy("the provider's list"),
    "probed": gettext_lazy("probed"),
    "bundled": gettext_lazy("bundled data"),
    "unknown": gettext_lazy("unknown"),
}
FORGOTTEN = "Forgot the findings of probes."  # in the log
MAX_VALUE = 1_000  # characters
MAX_LIMIT = 2**31 - 1  # of the columns


@dataclass(frozen=True, slots=True)
class CapabilityRow:
    name: str
    value: Any
    source: Source
    date: str
    default: Any  # what counts without the override
    refused: str | None = None  # what staff wrote and could not be stored

    @property
    def source_label(self) -> str:
        return str(SOURCES[self.source])

    @property
    def is_stored(self) -> bool:
        """Whether the row has the value, so that it can return to the default."""
        return self.source in {"overridden", "listed"}

    @property
    def value_json(self) -> str:
        return "" if self.value is None else json.dumps(self.value)

    @property
    def written(self) -> str:
        """The text of the row's field."""
        return self.value_json if self.refused is None else self.refused

    @property
    def default_json(self) -> str:
        return _("unknown") if self.default is None else json.dumps(self.default)


def capability_rows(
    model: LanguageModel, refused: Mapping[str, str] | None = None
) -> list[CapabilityRow]:
    """Each capability with the layer that decides it. `refused` has texts, by name,
    that were written and not stored."""
    provider = model.provider
    bundled = capabilities_of(
        provider.kind, model.name, wire=_wire_format(model)
    ).to_dict()
    probed = model.findings
    rows = [_row(model, name, bundled, probed) for name in FIELD_NAMES]
    return [replace(row, refused=(refused or {}).get(row.name)) for row in rows]


def _row(
    model: LanguageModel,
    name: str,
    bundled: Mapping[str, Any],
    probed: Mapping[str, Any],
) -> CapabilityRow:
    default = probed.get(name, bundled.get(name))
    if name in model.overrides:
        at = _format(model.overridden_at.get(name))
        source: Source = "listed" if model.is_listed(name) else "overridden"
        return CapabilityRow(name, model.overrides[name], source, at, default)
    if name in probed:
        at = _format(model.probed_at.isoformat() if model.probed_at else None)
        return CapabilityRow(name, default, "probed", at, default)
    if name in bundled:
        as_of = capabilities.bundled_date()
        return CapabilityRow(name, default, "bundled", as_of, default)
    return CapabilityRow(name, None, "unknown", "", None)


def _wire_format(model: LanguageModel) -> str:
    """The wire format of its requests; "" if its host does not support it."""
    provider = model.provider
    try:
        host = provider.host
        return host.codec(provider.codec, provider.options).name if host else ""
    except KeyError:
        return ""


def _format(moment: str | None) -> str:
    if not moment:
        return _("unknown date")
    local = timezone.localtime(datetime.fromisoformat(moment))
    return date_format(local, "DATETIME_FORMAT")


class CapabilityMixin(admin.ModelAdmin):
    """Adds the page to the admin of models."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.capabilities_view)
        name = "llm_languagemodel_capabilities"
        route = "<path:object_id>/capabilities/"
        return [path(route, view, name=name), *super().get_urls()]

    def capabilities_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        model = self.get_object(request, object_id)
        if model is None:
            raise Http404
        may_change = self.has_change_permission(request, model)
        if not may_change and not self.has_view_permission(request, model):
            raise PermissionDenied
        if request.method == "POST":
            if not may_change:
                raise PermissionDenied
            if "forget" in request.POST:
                return self._forget_findings(request, model)
            return self._change(request, model)
        return self._show(request, model, may_change)

    def _show(
        self,
        request: HttpRequest,
        model: LanguageModel,
        may_change: bool,
        refused: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "title": _("Capabilities"),
            "opts": self.opts,
            "row": model,
            "capabilities": capability_rows(model, refused),
            "outdated": OUTDATED if model.is_probe_outdated else "",
            "may_change": may_change,
            "may_forget": may_change and bool(model.probed_capabilities),
        }
        template = "admin/llm/languagemodel/capabilities.html"
        status = 400 if refused else 200
        return TemplateResponse(request, template, context, status=status)

    def _change(self, request: HttpRequest, model: LanguageModel) -> HttpResponse:
        """Override one capability, or return to its default."""
        name, text = request.POST.get("name", ""), request.POST.get("value", "")
        here = reverse(
            f"{self.admin_site.name}:llm_languagemodel_capabilities", args=[model.pk]
        )
        if "reset" in request.POST and name in FIELD_NAMES:
            model.override([name], {})
        elif problems := self._override(model, name, text):
            for problem in problems:
                self.message_user(request, problem, messages.ERROR)
            return self._show(request, model, True, {name: text})
        model.save(update_fields=model.OVERRIDE_COLUMNS)
        self.log_change(request, model, f"Changed the capability {name}.")
        done = _("The capability %(name)s was changed.") % {"name": name}
        self.message_user(request, done, messages.SUCCESS)
        return redirect(here)

    def _forget_findings(
        self, request: HttpRequest, model: LanguageModel
    ) -> HttpResponse:
        model.forget_findings()
        self.log_change(request, model, FORGOTTEN)
        text = _("What probes found of %(model)s was forgotten.")
        self.message_user(request, text % {"model": model.name}, messages.SUCCESS)
        name = f"{self.admin_site.name}:llm_languagemodel_capabilities"
        return redirect(reverse(name, args=[model.pk]))

    def _override(self, model: LanguageModel, name: str, text: str) -> Sequence[str]:
        """The problems, if it cannot be set to the JSON `text`."""
        if len(text) > MAX_VALUE or not is_storable_json(text):
            return [_("Enter a value as JSON, such as true or 8192; null is unknown.")]
        value = json.loads(text)
        if problems := capabilities.problems({name[:100]: value}):
            return problems
        if value is None and name in LIMITS:
            return [_("A limit cannot be overridden by null; return to its default.")]
        if name in LIMITS and value > MAX_LIMIT:
            return [_("This limit is too large.")]
        model.override([name], {name: value})
        return []
