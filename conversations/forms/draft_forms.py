"""Forms of preset drafts, of preview chats and of evaluations."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db.models import Q
from django.forms.models import BaseInlineFormSet, inlineformset_factory
from django.utils.translation import gettext_lazy as _

from conversations.forms.preset_forms import NotedForm
from conversations.models.preset import ContextSource, Preset
from conversations.models.staff.evaluation import (
    MAX_CASES,
    MAX_INPUT,
    EvaluationCase,
    EvaluationSet,
    PresetDraft,
)
from conversations.models.staff.preset_content import Content, content_of
from llm.forms.fields import FullNameField, JSONObjectField, OneFullNameField
from llm.models import LanguageModel
from tools.forms import CODE_ATTRIBUTES


class DraftForm(NotedForm):
    """The content of a preset; saving it is up to the caller."""

    sources = forms.CharField(
        required=False,
        label=_("Context sources"),
        help_text=_("Names of sources in their order, one a line."),
        widget=forms.Textarea({"rows": 3}),
    )

    class Meta:
        model = Preset
        fields = [
            "label",
            "description",
            "instructions",
            "language_model",
            "allowed_models",
            "options",
            "tools",
            "only_named_tools",
            "max_tokens",
            "max_cost",
            "max_tool_calls",
        ]
        field_classes = {
            "options": JSONObjectField,
            "language_model": OneFullNameField,
            "allowed_models": FullNameField,
        }
        widgets = {
            "options": forms.Textarea({"rows": 4, **CODE_ATTRIBUTES}),
            "description": forms.TextInput({"size": 80}),
            "instructions": forms.Textarea({"rows": 12, "cols": 80}),
        }

    def __init__(
        self,
        data: Any,
        *,
        preset: Preset,
        draft: PresetDraft | None,
        querysets: dict[str, Any],
        may_set_sources: bool,
    ) -> None:
        """`querysets` limit the choices. Raises ValidationError if the draft names a
        model that is gone."""
        self._content: Content = draft.content if draft else preset.content()
        drafted = preset.with_content(self._content)
        tools, models = drafted.linked_tools(), drafted.linked_models()
        super().__init__(
            data,
            instance=drafted,
            initial={
                "tools": tools,
                "allowed_models": models,
                "sources": "\n".join(self._content["sources"]),
                "note": draft.note if draft else "",
            },
        )
        own: dict[str, Any] = self.fields
        for name in ("language_model", "allowed_models"):
            rows = LanguageModel.objects.select_related("provider")
            own[name].queryset = querysets.get(name, rows)
        if "tools" in querysets:
            own["tools"].queryset = querysets["tools"]
        if not may_set_sources:
            del self.fields["sources"]
        self.order_fields([*(name for name in self.fields if name != "note"), "note"])

    def clean_sources(self) -> list[str]:
        names = [line.strip() for line in self.cleaned_data["sources"].splitlines()]
        names = list(dict.fromkeys(filter(None, names)))
        known = set(
            ContextSource.objects.filter(name__in=names).values_list("name", flat=True)
        )
        if unknown := [name for name in names if name not in known]:
            text = _("There is no source %(name)r.")
            raise ValidationError(text, params={"name": unknown[0]})
        return names

    def content(self) -> Content:
        """The content as the form has it."""
        cleaned = self.cleaned_data
        sources: Any = cleaned.get("sources", self._content["sources"])
        return content_of(
            self.instance,
            models=list(cleaned["allowed_models"]),
            tools=list(cleaned["tools"]),
            sources=sources,
        )


class PreviewForm(forms.Form):
    text = forms.CharField(
        label=_("Message"),
        max_length=MAX_INPUT,
        widget=forms.Textarea({"rows": 4, "cols": 80}),
    )


class EvaluationSetForm(forms.ModelForm):
    class Meta:
        model = EvaluationSet
        fields = ["name", "judge", "blocks_publishing"]
        field_classes = {"judge": OneFullNameField}

    def __init__(self, *args: Any, user: Any, may_override: bool, **kwargs: Any):
        super().__init__(*args, **kwargs)
        own: dict[str, Any] = self.fields
        available = LanguageModel.objects.available_to(user)
        # The present judge stays a choice, so that saving the rest does not remove it.
        models = LanguageModel.objects.filter(
            Q(pk__in=available.values("pk")) | Q(pk=self.instance.judge_id)
        ).select_related("provider")
        own["judge"].queryset = models.order_by("name", "provider__name")
        if self.instance.blocks_publishing and not may_override:
            own["blocks_publishing"].disabled = own["judge"].disabled = True

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        rows = EvaluationSet.objects.filter(preset=self.instance.preset_id, name=name)
        if rows.exclude(pk=self.instance.pk).exists():
            raise ValidationError(_("The preset has an evaluation of this name."))
        return name


class OptionalSchemaField(forms.JSONField):
    """Empty where there is no schema, instead of `null`."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class EvaluationCaseForm(forms.ModelForm):
    class Meta:
        model = EvaluationCase
        fields = ["input", "contains", "pattern", "schema", "rubric"]
        field_classes = {"schema": OptionalSchemaField}
        widgets = {
            "input": forms.Textarea({"rows": 3, "cols": 60}),
            "contains": forms.Textarea({"rows": 2, "cols": 60}),
            "pattern": forms.TextInput({"size": 60, **CODE_ATTRIBUTES}),
            "schema": forms.Textarea({"rows": 2, "cols": 60, **CODE_ATTRIBUTES}),
            "rubric": forms.Textarea({"rows": 2, "cols": 60}),
        }

    def __init__(self, *args: Any, is_read_only: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if is_read_only:
            for field in self.fields.values():
                field.disabled = True


CaseFormSet: type[BaseInlineFormSet[Any, Any, Any]] = inlineformset_factory(
    EvaluationSet,
    EvaluationCase,
    form=EvaluationCaseForm,
    extra=2,
    can_delete_extra=False,
    max_num=MAX_CASES,
    absolute_max=MAX_CASES + 10,
    validate_max=True,
)


def case_forms(data: Any, found: EvaluationSet, *, may_override: bool) -> Any:
    """The cases of a set that blocks publishing are read-only for those who may not
    publish without it: with easier ones it would be passed by anything."""
    is_read_only = found.blocks_publishing and not may_override
    cases = CaseFormSet(
        data,
        instance=found,
        prefix="cases",
        form_kwargs={"is_read_only": is_read_only},
    )
    if is_read_only:
        cases.extra, cases.can_delete = 0, False
    return cases


class RunForm(forms.Form):
    budget = forms.DecimalField(
        label=_("Budget in USD"),
        required=False,
        max_digits=12,
        decimal_places=6,
        validators=[MinValueValidator(0)],
    )
    with_live = forms.BooleanField(
        label=_("Ask the live version too"), required=False, initial=True
    )
