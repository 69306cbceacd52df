"""The admin's sync of models: shows the differences to a provider's model list, and
applies the chosen ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from llm.error_texts.for_staff import describe_failure
from llm.errors import LLMError
from llm.models import LanguageModel, Provider
from llm.providers.demo import PROVIDER as DEMO

if TYPE_CHECKING:
    from llm.sync.model_list import ModelListComparison


class ModelSyncMixin(admin.ModelAdmin):
    @admin.action(description=_("Sync models"), permissions=["sync"])
    def sync_models(
        self, request: HttpRequest, rows: QuerySet[Provider]
    ) -> HttpResponse | None:
        """Show the differences to the provider's model list; apply the chosen ones."""
        if len(rows) != 1:
            problem = _(
                "Select exactly one provider; models are synced for one provider at a"
                " time."
            )
            self.message_user(request, problem, messages.ERROR)
            return None
        provider = rows[0]
        try:
            comparison = self.compare_models(request, provider)
        except LLMError as exc:
            why = describe_failure(exc)
            self.message_user(request, f"{provider}: {why}", messages.ERROR)
            return None
        if not request.POST.keys() & {"_apply", "_apply_on", "_apply_all", "_chat"}:
            return self._show_comparison(request, provider, comparison)
        chosen = _chosen(request, comparison)
        if not any(chosen.values()):
            text = _("Nothing was changed: tick the models to apply.")
            self.message_user(request, text, messages.WARNING)
            return self._show_comparison(request, provider, comparison)
        if not _was_seen(request, comparison, chosen):
            text = _("The list has changed since you opened the page: review it again.")
            self.message_user(request, text, messages.WARNING)
            return self._show_comparison(request, provider, comparison)
        added = self._apply(request, provider, comparison, chosen)
        if added and "_chat" in request.POST:
            return redirect(self.admin_site.each_context(request)["site_url"])
        return None

    def compare_models(
        self, request: HttpRequest, provider: Provider
    ) -> ModelListComparison:
        """What this member of staff may apply. Raises LLMError."""
        # Imported here: at the top every management command would load the HTTP
        # libraries.
        from llm.sync import model_list

        found = model_list.compare(provider)
        if request.user.has_perm("llm.add_modelprice"):
            return found
        return found.without_prices()

    def has_sync_permission(self, request: HttpRequest) -> bool:
        needed = ["llm.add_languagemodel", "llm.change_languagemodel"]
        return bool(request.user.has_perms(needed))

    def _show_comparison(
        self, request: HttpRequest, provider: Provider, comparison: ModelListComparison
    ) -> HttpResponse | None:
        if comparison.left_out:
            self._name_left_out(request, comparison.left_out)
        if not comparison:
            text = _("The models of %(provider)s are up to date.")
            self.message_user(request, text % {"provider": provider}, messages.INFO)
            return None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Models of %(provider)s") % {"provider": provider},
            "opts": self.opts,
            "provider": provider,
            "comparison": comparison,
            "seen": _seen(comparison),
            "has_only_demo": not usable_beside_demo().exists(),
        }
        return TemplateResponse(request, "admin/llm/provider/sync_models.html", context)

    def _name_left_out(self, request: HttpRequest, count: int) -> None:
        text = ngettext(
            "%(count)d listed model cannot be added: its name is longer than"
            " %(limit)d characters.",
            "%(count)d listed models cannot be added: their names are longer than"
            " %(limit)d characters.",
            count,
        )
        limit = LanguageModel._meta.get_field("name").max_length
        values = {"count": count, "limit": limit}
        self.message_user(request, text % values, messages.WARNING)

    def _apply(
        self,
        request: HttpRequest,
        provider: Provider,
        comparison: ModelListComparison,
        chosen: Mapping[str, list[str]],
    ) -> int:
        """Returns how many models were added."""
        from llm.sync import model_list

        is_on = bool(request.POST.keys() & {"_apply_on", "_chat"})
        done = model_list.apply(
            provider, comparison, **chosen, enables_new=is_on, user=request.user
        )
        counts = {
            "added": done.added,
            "changed": done.changed,
            "off": done.switched_off,
        }
        text = _("%(added)d added, %(changed)d changed, %(off)d switched off.") % counts
        # The first entry of the log is the event that names the changed rows.
        self.log_change(request, provider, f"Synced models: {text}")
        if is_on and done.added:
            self.replace_demo_as_default(request, provider)
        self.message_user(request, self._with_link(provider, text), messages.SUCCESS)
        return done.added

    def _with_link(self, provider: Provider, text: str) -> str:
        """`text` with a link to the provider's models."""
        page = reverse(f"{self.admin_site.name}:llm_languagemodel_changelist")
        link = f"{page}?provider__id__exact={provider.pk}"
        return format_html('{} <a href="{}">{}</a>', text, link, _("Show the models"))

    def replace_demo_as_default(self, request: HttpRequest, provider: Provider) -> None:
        """The first model that is no demo becomes the default of new chats."""
        if usable_beside_demo().filter(is_default=True).exists():
            return
        usable = LanguageModel.objects.usable()
        model = usable.filter(provider=provider).order_by("pk").first()
        if model is None or provider.kind == DEMO.name:
            return
        model.make_default()
        self.log_change(request, provider, f"Made {model.name} the default model")
        text = _("%(model)s is the default model of new chats now.")
        self.message_user(request, text % {"model": model}, messages.SUCCESS)


def _chosen(
    request: HttpRequest, comparison: ModelListComparison
) -> dict[str, list[str]]:
    names = comparison.names()
    if "_apply_all" in request.POST:
        return names
    return {kind: request.POST.getlist(kind) for kind in names}


def _seen(comparison: ModelListComparison) -> str:
    """One field for all lines: a form has at most a thousand."""
    digests = comparison.digests().values()
    return " ".join(digest for named in digests for digest in named.values())


def _was_seen(
    request: HttpRequest,
    comparison: ModelListComparison,
    chosen: Mapping[str, list[str]],
) -> bool:
    """Whether the chosen lines are still what the page showed: the list is requested
    again to apply them."""
    seen, digests = request.POST.get("seen", "").split(), comparison.digests()
    found = (digests[kind].get(name) for kind in chosen for name in chosen[kind])
    return set(seen).issuperset(found)


def usable_beside_demo() -> QuerySet[LanguageModel]:
    return LanguageModel.objects.usable().exclude(provider__kind=DEMO.name)
