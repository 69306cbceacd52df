"""The way of a request: a model's names, the model and its fallbacks, with their state.

Drawn as a list with arrows, on a page for all models and on the page of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _

from llm.admin.provider_status import ProviderStatus, statuses_of
from llm.generation.retry_policy import DEFAULT_POLICY, Policy
from llm.models import LanguageModel

MAX_PATHS = 200  # models on the page


@dataclass(frozen=True, slots=True)
class PathStop:
    model: LanguageModel
    role: str  # what it is on the path
    status: ProviderStatus

    @property
    def group_names(self) -> str:
        """The groups that may use it; "" for everybody."""
        return ", ".join(sorted(group.name for group in self.model.groups.all()))


@dataclass(frozen=True, slots=True)
class FallbackPath:
    names: Sequence[str]  # that programs may use
    stops: Sequence[PathStop]  # the model, then its fallbacks in their order
    conditions: str  # the errors after which the next model is called

    @property
    def model(self) -> LanguageModel:
        return self.stops[0].model


def paths_of(rows: Iterable[LanguageModel]) -> list[FallbackPath]:
    """The paths of these models. The number of queries does not depend on theirs."""
    models = list(rows)
    chains = _chains_of(models)
    stops = {each.pk: each for chain in chains.values() for each in chain}
    providers = {each.provider_id: each.provider for each in stops.values()}
    of_providers = statuses_of(providers.values())
    statuses = {
        pk: _status(stop, of_providers[stop.provider_id]) for pk, stop in stops.items()
    }
    return [_path(model, chains[model.pk], statuses) for model in models]


def _path(
    model: LanguageModel,
    chain: Sequence[LanguageModel],
    statuses: Mapping[int, ProviderStatus],
) -> FallbackPath:
    stops = [
        PathStop(stop, _role(number), statuses[stop.pk])
        for number, stop in enumerate(chain)
    ]
    if model.is_retired:
        off = ProviderStatus("off", _("Its replacement answers."))
        if chain[0] == model:  # there is no usable replacement
            off = ProviderStatus("off", _("Requests for it are refused."))
            stops = []
        stops = [PathStop(model, _("retired"), off), *stops]
    conditions = _describe_conditions(chain[0], has_next=len(chain) > 1)
    names = [*filter(None, [model.alias]), model.full_name]
    return FallbackPath(names, stops, conditions)


def _role(number: int) -> str:
    return _("fallback %(number)d") % {"number": number} if number else _("first")


def _chains_of(models: Sequence[LanguageModel]) -> dict[int, list[LanguageModel]]:
    """The model that answers for each, and that one's fallbacks, in the order in which
    calls try them."""
    current = {model.pk: model.current_for(None).pk for model in models}
    answering = LanguageModel.objects.filter(pk__in=current.values())
    fallbacks = answering.fallback_keys()
    wanted = {*current.values()}.union(*fallbacks.values())
    rows = LanguageModel.objects.filter(pk__in=wanted).select_related("provider")
    found = rows.prefetch_related("provider__keys", "groups").in_bulk()
    return {
        pk: [found[each] for each in (first, *fallbacks.get(first, ()))]
        for pk, first in current.items()
    }


def _status(model: LanguageModel, of_provider: ProviderStatus) -> ProviderStatus:
    """Whether calls can reach the model now; of its provider, where nothing is known of
    the model alone."""
    if not model.enabled:
        return ProviderStatus("off", _("The model is switched off."))
    if model.is_retired:
        return ProviderStatus("off", _("The model is retired."))
    if of_provider.light in ("off", "fails"):
        return of_provider
    keys = list(model.provider.keys.all())
    now = timezone.now()
    resting = [key for key in keys if model.name in key.model_rests_after(now)]
    if not resting:
        return of_provider
    named = ", ".join(str(key) for key in resting)
    text = _("Resting for this model: %(keys)s.") % {"keys": named}
    return ProviderStatus("fails" if len(resting) == len(keys) else "warning", text)


def _describe_conditions(model: LanguageModel, *, has_next: bool) -> str:
    if not has_next:
        return ""
    value = model.options.get("retry")
    try:
        policy = DEFAULT_POLICY if value is None else Policy.read(value)
    except ValueError as exc:
        return _("Its option “retry” is invalid: %(why)s") % {"why": exc}
    if not policy.fall_back_on:
        return _("Its option “retry” names no error after which a fallback is called.")
    return _("The next model is called after %(errors)s.") % {
        "errors": ", ".join(sorted(policy.fall_back_on))
    }


class FallbackPathMixin(admin.ModelAdmin):
    """Adds the page of all paths. Who may see models may see it."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.paths_view)
        return [
            path("paths/", view, name="llm_languagemodel_paths"),
            *super().get_urls(),
        ]

    def paths_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = self.get_queryset(request).filter(_HAS_PATH).distinct()
        shown: QuerySet[LanguageModel] = rows.select_related("provider")
        found = list(shown[: MAX_PATHS + 1])
        context = {
            **self.admin_site.each_context(request),
            "title": _("Fallback paths"),
            "opts": self.opts,
            "paths": paths_of(found[:MAX_PATHS]),
            "maximum": MAX_PATHS if len(found) > MAX_PATHS else None,
        }
        return TemplateResponse(request, "admin/llm/languagemodel/paths.html", context)

    @admin.display(description=_("way of a request"))
    def fallback_path(self, obj: LanguageModel) -> str:
        if obj.pk is None:
            return "–"
        [shown] = paths_of([obj])
        return render_to_string("admin/llm/languagemodel/_path.html", {"path": shown})


#: A model that has another name, a fallback or an end.
_HAS_PATH = (
    Q(alias__isnull=False) | Q(fallbacks__isnull=False) | Q(retires_at__isnull=False)
)
