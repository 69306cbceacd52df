"""A model's prices on its page: those with a date, and which one counts now."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import JSONField
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from llm.forms.fields import JSONObjectField
from llm.models import LanguageModel, ModelPrice
from llm.pricing.cost import TIERS, listed_prices, prices_at

#: Between opening the page and saving it.
GRACE = timedelta(minutes=10)


class ModelPriceForm(forms.ModelForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["valid_from"].required = False
        if self.instance.is_in_effect:
            for each in self.fields.values():
                each.disabled = True

    def clean_valid_from(self) -> datetime:
        now = timezone.now()
        entered: datetime | None = self.cleaned_data["valid_from"]
        if entered is None:
            return now
        is_new = "valid_from" in self.changed_data or self.instance.pk is None
        if is_new and entered < now - GRACE:
            raise forms.ValidationError(
                _("A price can begin now or later; calls that were made keep theirs.")
            )
        return entered


class ModelPriceFormSet(BaseInlineFormSet):
    def add_fields(self, form: Any, index: int | None) -> None:
        super().add_fields(form, index)
        if form.instance.is_in_effect and "DELETE" in form.fields:
            form.fields["DELETE"].disabled = True


class ModelPriceInline(admin.TabularInline):
    model = ModelPrice
    form = ModelPriceForm
    formset = ModelPriceFormSet
    formfield_overrides = {
        JSONField: {
            "form_class": JSONObjectField,
            "widget": forms.Textarea({"rows": 1, "cols": 20, "spellcheck": "false"}),
        }
    }
    fields = [
        "valid_from",
        "input",
        "cached_input",
        "cache_write",
        "output",
        "web_search",
        "file_search",
        "tiers",
        "added_by",
    ]
    readonly_fields = ["added_by"]
    extra = 0
    verbose_name_plural = gettext_lazy(
        "Prices with a date, in USD per million tokens and per 1,000 searches; all"
        " empty: the bundled list"
    )


def save_prices(request: HttpRequest, formset: Any) -> None:
    """Save the rows of the form, and who entered the new ones."""
    rows = formset.save(commit=False)
    for row in formset.deleted_objects:
        row.delete()
    for row in rows:
        row.added_by = row.added_by or request.user
        row.save()
    formset.save_m2m()


def describe_price(model: LanguageModel) -> str:
    """What a call costs now, and where that price comes from."""
    now = datetime.now(tz=UTC)
    stated = prices_at(model.prices, model.price_schedule, now)
    if stated:
        begun = [e["from"] for e in model.price_schedule if _parse(e["from"]) <= now]
        source = (
            _("set by staff, since %(at)s") % {"at": _format(begun[-1])}
            if begun
            else _("set by staff, without a date")
        )
        return f"{_join(stated)} ({source})"
    provider = model.provider
    listed = listed_prices(provider.kind, provider.address, model.name)
    if not listed:
        return _("Unknown; costs of calls are not counted unless the host bills them.")
    source = _("bundled price list")
    return f"{_join(listed)} ({source})"


def _join(prices: Mapping[str, Any]) -> str:
    labels = {
        "input": _("input"),
        "cached_input": _("cached input"),
        "cache_write": _("cache write"),
        "output": _("output"),
    }
    named = [
        f"{labels[name]} {float(prices[name]):g}" for name in labels if name in prices
    ]
    text = _("USD per million tokens: %(prices)s") % {"prices": ", ".join(named)}
    labels = {"web_search": _("web searches"), "file_search": _("file searches")}
    named = [
        f"{labels[name]} {float(prices[name]):g}" for name in labels if name in prices
    ]
    if named:
        shown = {"prices": ", ".join(named)}
        text += "; " + _("per 1,000 searches: %(prices)s") % shown
    if tiers := prices.get(TIERS):
        factors = ", ".join(
            f"{tier} × {float(tiers[tier]):g}" for tier in sorted(tiers)
        )
        text += "; " + _("service tiers: %(factors)s") % {"factors": factors}
    return text


def _parse(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


def _format(moment: str) -> str:
    return date_format(timezone.localtime(_parse(moment)), "SHORT_DATETIME_FORMAT")
