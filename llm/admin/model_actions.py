"""Actions on several models: enable, aliases, groups, retirement, default."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from llm.admin.bulk_actions import (
    GroupRightsMixin,
    ask_about_rows,
    change_row,
    filled_form,
    report_rows,
    switch_enabled,
)
from llm.error_texts.staff_instructions import instruct
from llm.forms.fields import OneFullNameField
from llm.models import LanguageModel, ModelPool

MAX_ALIASES = 50  # models on the page, each with a field


class AliasForm(forms.Form):
    """A field for each of the models; an empty one removes the alias."""

    def __init__(
        self, *args: Any, models: Sequence[LanguageModel], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.models = models
        column: Any = LanguageModel._meta.get_field("alias")
        for model in models:
            field: Any = column.formfield()
            field.validators = [*field.validators, *column.validators]
            field.label, field.required = model.full_name, False
            field.initial, field.help_text = model.alias, ""
            self.fields[f"alias_{model.pk}"] = field

    def clean(self) -> dict[str, Any]:
        found: dict[str, Any] = super().clean() or {}
        counts = Counter(value for value in found.values() if value)
        own = [model.pk for model in self.models]
        others = LanguageModel.objects.exclude(pk__in=own).filter(alias__in=counts)
        taken = {row.alias: row for row in others.select_related("provider")}
        pools = ModelPool.objects.filter(name__in=counts)
        of_pools = {*pools.values_list("name", flat=True)}
        for name, value in list(found.items()):
            if value in of_pools:
                self.add_error(name, _("A model pool has this name."))
            elif value in taken:
                text = _("%(model)s has this alias.")
                self.add_error(name, text % {"model": taken[value].full_name})
            elif value and counts[value] > 1:
                self.add_error(name, _("Two of these models have this alias."))
        return found

    def aliases(self) -> Iterator[tuple[LanguageModel, str | None]]:
        for model in self.models:
            yield model, self.cleaned_data[f"alias_{model.pk}"] or None


class RetirementForm(forms.Form):
    retires_at = forms.DateTimeField(
        label=gettext_lazy("Retired from"),
        required=False,
        widget=forms.DateTimeInput({"type": "datetime-local"}),
        help_text=gettext_lazy(
            "From then on nobody can choose them. Empty: they are not retired."
        ),
    )
    replacement = OneFullNameField(
        LanguageModel.objects.select_related("provider"),
        label=gettext_lazy("Replacement"),
        required=False,
        help_text=gettext_lazy("The model that answers once they are retired."),
    )


class ModelActionsMixin(GroupRightsMixin):
    @admin.action(description=gettext_lazy("Enable"), permissions=["change"])
    def enable(self, request: HttpRequest, rows: QuerySet[LanguageModel]) -> None:
        switch_enabled(self, request, rows, on=True)

    @admin.action(description=gettext_lazy("Disable"), permissions=["change"])
    def disable(self, request: HttpRequest, rows: QuerySet[LanguageModel]) -> None:
        switch_enabled(self, request, rows, on=False)

    @admin.action(description=gettext_lazy("Make default"), permissions=["change"])
    def make_default(self, request: HttpRequest, rows: QuerySet[LanguageModel]) -> None:
        if len(rows) != 1:
            problem = _("Select exactly one model; only one can be the default.")
            self.message_user(request, problem, messages.ERROR)
            return
        model = rows[0]
        if why := model.why_unusable:
            text = _("%(model)s cannot be the default: %(why)s.")
            values = {"model": model, "why": instruct(why)}
            self.message_user(request, text % values, messages.ERROR)
            return
        model.make_default()
        changes = [{"changed": {"fields": ["is_default"]}}]
        self.log_change(request, model, changes)
        text = _("%(model)s is the default model of new chats now.") % {"model": model}
        self.message_user(request, text, messages.SUCCESS)

    # Aliases

    @admin.action(
        description=gettext_lazy("Set or remove aliases…"), permissions=["change"]
    )
    def set_aliases(
        self, request: HttpRequest, rows: QuerySet[LanguageModel]
    ) -> HttpResponse | None:
        models = list(rows.select_related("provider")[: MAX_ALIASES + 1])
        if len(models) > MAX_ALIASES:
            text = _("Choose at most %(maximum)d models.") % {"maximum": MAX_ALIASES}
            self.message_user(request, text, messages.ERROR)
            return None
        form: Any = filled_form(request, AliasForm, models=models)
        if not form.is_bound or not form.is_valid():
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Set or remove aliases"),
                effect=_(
                    "Programs that use an alias get the model that has it from then"
                    " on. An empty field removes the alias."
                ),
                form=form,
            )
        self._set_aliases(request, form)
        return None

    @transaction.atomic
    def _set_aliases(self, request: HttpRequest, form: AliasForm) -> None:
        pairs = list(form.aliases())
        changed = [(row, alias) for row, alias in pairs if alias != row.alias]
        wanted = {alias for _row, alias in changed if alias}
        for row, _alias in changed:  # so that two models may exchange theirs
            if row.alias in wanted:
                row.alias = None
                row.save(update_fields=["alias"])
        for row, alias in changed:
            row.alias = alias
            row.save(update_fields=["alias"])
            self.log_change(request, row, [{"changed": {"fields": ["alias"]}}])
        count, same = len(changed), len(pairs) - len(changed)
        text = ngettext(
            "Alias of %(count)d model changed",
            "Aliases of %(count)d models changed",
            count,
        )
        left_out = Counter({_("had this alias already"): same} if same else {})
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))

    # Retirement

    @admin.action(
        description=gettext_lazy("Set or remove a retirement…"), permissions=["change"]
    )
    def set_retirement(
        self, request: HttpRequest, rows: QuerySet[LanguageModel]
    ) -> HttpResponse | None:
        form = filled_form(request, RetirementForm)
        if not form.is_bound or not form.is_valid():
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Set or remove a retirement"),
                effect=_(
                    "From the date on requests for these models go to the replacement;"
                    " without one they are refused."
                ),
                form=form,
            )
        self._set_retirement(request, rows, form.cleaned_data)
        return None

    def _set_retirement(
        self,
        request: HttpRequest,
        rows: QuerySet[LanguageModel],
        values: dict[str, Any],
    ) -> None:
        left_out: Counter[str] = Counter()
        count = 0
        for row in rows.select_related("provider", "replacement"):
            if all(getattr(row, name) == value for name, value in values.items()):
                left_out[_("had this date already")] += 1
            elif why := change_row(row, values):
                left_out[f"{row} ({why})"] += 1
            else:
                self.log_change(request, row, [{"changed": {"fields": list(values)}}])
                count += 1
        text = (
            ngettext(
                "%(count)d model has a date of retirement now",
                "%(count)d models have a date of retirement now",
                count,
            )
            if values["retires_at"]
            else ngettext(
                "%(count)d model is not retired now",
                "%(count)d models are not retired now",
                count,
            )
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))
