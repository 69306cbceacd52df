"""Actions on several API keys: enable, disable, drain, set their weight."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from llm.admin.bulk_actions import (
    ask_about_rows,
    change_each,
    filled_form,
    report_rows,
)
from llm.errors import LLMError
from llm.models import ApiKey
from llm.pricing.caller import Caller

MAX_WEIGHT = 32_767  # of the column
MAX_TESTED = 10  # keys or providers of an action


class WeightForm(forms.Form):
    weight = forms.IntegerField(
        label=gettext_lazy("Weight"),
        min_value=0,
        max_value=MAX_WEIGHT,
        help_text=gettext_lazy(
            "Share of the provider's calls that each of them gets; 0 means none."
        ),
    )


class KeyActionsMixin(admin.ModelAdmin):
    @admin.action(
        description=gettext_lazy("Enable the selected keys"), permissions=["change"]
    )
    def enable(self, request: HttpRequest, rows: QuerySet[ApiKey]) -> None:

        def enable(key: ApiKey) -> str:
            if key.state == key.State.ACTIVE and not key.model_rests:
                return _("enabled already")
            key.enable()
            self.log_change(request, key, "Enabled.")
            return ""

        count, left_out = change_each(rows.select_related("provider"), enable)
        text = ngettext("%(count)d key enabled", "%(count)d keys enabled", count)
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))

    @admin.action(
        description=gettext_lazy("Test the selected keys"), permissions=["change"]
    )
    def test(self, request: HttpRequest, rows: QuerySet[ApiKey]) -> None:
        """One short answer with each, as "Save and test connection" of a provider."""
        # Imported here: at the top every command would load the HTTP libraries.
        from llm.sync.key_check import probe

        keys = list(rows.select_related("provider")[: MAX_TESTED + 1])
        if len(keys) > MAX_TESTED:
            text = _("Select at most %(count)d keys: each waits for its host.")
            self.message_user(request, text % {"count": MAX_TESTED}, messages.ERROR)
            return
        for key in keys:
            try:
                findings = probe(key, Caller(user_id=request.user.pk))
            except LLMError as exc:
                text = f"{key.provider}, {key}: {exc}"
                self.message_user(request, text, messages.ERROR)
                continue
            for finding in findings:
                level = messages.SUCCESS if finding.works else messages.ERROR
                text = f"{key.provider}, {key}: {finding.text}"
                self.message_user(request, text, level)

    @admin.action(
        description=gettext_lazy("Disable the selected keys…"), permissions=["change"]
    )
    def disable(
        self, request: HttpRequest, rows: QuerySet[ApiKey]
    ) -> HttpResponse | None:
        if "confirmed" not in request.POST:
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Disable these keys?"),
                effect=_("Running calls end with them, and no new call uses them."),
            )

        def disable(key: ApiKey) -> str:
            if key.state == key.State.DISABLED:
                return _("disabled already")
            key.state, key.state_reason, key.rest_until = key.State.DISABLED, "", None
            key.save(update_fields=["state", "state_reason", "rest_until"])
            self.log_change(request, key, "Disabled.")
            return ""

        count, left_out = change_each(rows.select_related("provider"), disable)
        text = ngettext("%(count)d key disabled", "%(count)d keys disabled", count)
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))
        return None

    @admin.action(
        description=gettext_lazy("Drain the selected keys"), permissions=["change"]
    )
    def drain(self, request: HttpRequest, rows: QuerySet[ApiKey]) -> None:
        now = timezone.now()

        def drain(key: ApiKey) -> str:
            if key.has_ended:
                return _("got no new calls before")
            key.drains_at = now
            key.save(update_fields=["drains_at"])
            self.log_change(request, key, "Draining.")
            return ""

        count, left_out = change_each(rows, drain)
        text = ngettext(
            "%(count)d key gets no new calls",
            "%(count)d keys get no new calls",
            count,
        )
        done = text % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))

    @admin.action(
        description=gettext_lazy("Set the weight of the selected keys…"),
        permissions=["change"],
    )
    def set_weight(
        self, request: HttpRequest, rows: QuerySet[ApiKey]
    ) -> HttpResponse | None:
        form = filled_form(request, WeightForm)
        if not form.is_bound or not form.is_valid():
            return ask_about_rows(
                self,
                request,
                rows,
                title=_("Set the weight of these keys"),
                effect=_("A key with weight 2 gets twice the calls of one with 1."),
                form=form,
            )
        self._set_weight(request, rows, form.cleaned_data["weight"])
        return None

    def _set_weight(
        self, request: HttpRequest, rows: QuerySet[ApiKey], weight: int
    ) -> None:
        left_out: Counter[str] = Counter()
        count = 0
        for key in rows:
            if key.weight == weight:
                left_out[_("had this weight already")] += 1
                continue
            key.weight = weight
            key.save(update_fields=["weight"])
            self.log_change(request, key, [{"changed": {"fields": ["weight"]}}])
            count += 1
        text = ngettext(
            "%(count)d key has the weight %(weight)d now",
            "%(count)d keys have the weight %(weight)d now",
            count,
        )
        done: Any = text % {"count": count, "weight": weight}
        report_rows(self, request, done, left_out, any_done=bool(count))
