"""The admin's page that sends a test prompt to one model, or the same to several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from llm.forms.fields import FullNameField
from llm.models import LanguageModel, ModelCall, PromptTest
from llm.models.prompt_test import PromptAnswer

MAX_PROMPT = 8_000  # characters
MAX_OUTPUT = 4_000  # tokens
MAX_MODELS = 6  # as in `llm.probing.prompt_comparison`, which loads the HTTP libraries


class PromptTestForm(forms.Form):
    models = FullNameField(
        LanguageModel.objects.select_related("provider"),
        label=_("Models"),
        widget=forms.SelectMultiple({"size": 8}),
        help_text=_("At most six; models that are switched off may be tested too."),
    )
    prompt = forms.CharField(
        label=_("Prompt"),
        max_length=MAX_PROMPT,
        widget=forms.Textarea({"rows": 5, "cols": 70, "dir": "auto"}),
    )
    max_output_tokens = forms.IntegerField(
        label=_("Output tokens at most"),
        min_value=16,
        max_value=MAX_OUTPUT,
        initial=500,
        help_text=_("Of each answer, with its reasoning."),
    )
    budget = forms.DecimalField(
        label=_("Budget in USD"),
        required=False,
        min_value=0,
        max_digits=12,
        decimal_places=6,
        help_text=_(
            "For all answers together. A model that might exceed it is not asked."
        ),
    )

    def clean_models(self) -> list[LanguageModel]:
        chosen = list(self.cleaned_data["models"])
        if len(chosen) > MAX_MODELS:
            raise forms.ValidationError(
                _("Choose at most %(maximum)d models."), params={"maximum": MAX_MODELS}
            )
        return chosen


class PromptTestMixin(admin.ModelAdmin):
    """Adds the page to the admin of models, for staff with the permission for it."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.prompt_test_view)
        return [path("test/", view, name="llm_languagemodel_test"), *super().get_urls()]

    def has_test_permission(self, request: HttpRequest) -> bool:
        may_test = request.user.has_perm("llm.test_languagemodel")
        return may_test and self.has_view_permission(request)

    @admin.action(description=_("Send a test prompt"), permissions=["test"])
    def test_prompt(
        self, request: HttpRequest, rows: QuerySet[LanguageModel]
    ) -> HttpResponse | None:
        chosen = [row.pk for row in rows[: MAX_MODELS + 1]]
        if len(chosen) > MAX_MODELS:
            problem = _("Choose at most %(maximum)d models.")
            text = problem % {"maximum": MAX_MODELS}
            self.message_user(request, text, messages.ERROR)
            return None
        address = reverse(f"{self.admin_site.name}:llm_languagemodel_test")
        return redirect(f"{address}?{urlencode({'models': chosen}, doseq=True)}")

    def prompt_test_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_test_permission(request):
            raise PermissionDenied
        user: Any = request.user
        tests = PromptTest.objects.filter(user=user)
        address = f"{self.admin_site.name}:llm_languagemodel_test"
        if "stop" in request.POST:
            tests.exclude(job="").update(stop_requested=True)
            return redirect(address)
        if "clear" in request.POST:
            tests.delete()
            return redirect(address)
        last = tests.first()
        form = PromptTestForm(request.POST or None, initial=_initial(request, last))
        if form.is_bound and form.is_valid() and self._start(request, form):
            return redirect(address)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Test prompt"),
            "opts": self.opts,
            "form": form,
            "test": last,
            "answers": _find_calls(last.answers) if last else [],
            "may_view_calls": request.user.has_perm("llm.view_modelcall"),
        }
        page = "_test_answers" if "fragment" in request.GET else "test"
        template = f"admin/llm/languagemodel/{page}.html"
        return TemplateResponse(request, template, context)

    def _start(self, request: HttpRequest, form: PromptTestForm) -> bool:
        # Imported here: at the top every management command would load the HTTP
        # libraries.
        from llm.probing.prompt_comparison import ComparisonRefused, start_comparison

        asked: dict[str, Any] = form.cleaned_data
        try:
            start_comparison(
                asked["models"],
                asked["prompt"],
                max_output_tokens=asked["max_output_tokens"],
                budget=asked["budget"],
                user=request.user,
            )
        except ComparisonRefused as exc:
            form.add_error(None, str(exc))
            return False
        for model in asked["models"]:
            self.log_change(request, model, "Sent a test prompt.")
        return True


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    answer: PromptAnswer
    call: ModelCall | None


def _initial(request: HttpRequest, last: PromptTest | None) -> dict[str, Any]:
    """The models of the address, else those of the last test, and its prompt."""
    chosen = [each for each in request.GET.getlist("models") if each.isdecimal()]
    if last is None:
        return {"models": chosen}
    before = [each["model"] for each in last.answers]
    return {"models": chosen or before, "prompt": last.prompt}


def _find_calls(answers: list[PromptAnswer]) -> list[ShownAnswer]:
    calls = ModelCall.objects.in_bulk(
        [each["call"] for each in answers if each["call"] is not None]
    )
    return [ShownAnswer(each, calls.get(each["call"])) for each in answers]
