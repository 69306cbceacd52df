"""Forms of what a conversation's turns have in common: instructions and effort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from conversations.models import Conversation

#: Efforts of reasoning that the pages offer; programs may set others.
EFFORTS = [
    ("", _("As the model does")),
    ("none", _("None")),
    ("low", _("Low")),
    ("medium", _("Medium")),
    ("high", _("High")),
]


def effort_of(options: Mapping[str, Any]) -> str:
    """ "" if the model decides."""
    return (options.get("reasoning") or {}).get("effort") or ""


def with_effort(options: Mapping[str, Any], effort: str) -> dict[str, Any]:
    """The options with this effort, which models ignore that cannot reason. Without an
    effort no other option is ignored either."""
    found = dict(options)
    reasoning = {**(found.pop("reasoning", None) or {})}
    if reasoning.pop("effort", None):
        found.pop("ignore_invalid_options", None)
    if effort:
        reasoning["effort"] = effort
        found["ignore_invalid_options"] = True
    return {**found, "reasoning": reasoning} if reasoning else found


class ChatOptionsForm(forms.ModelForm):
    effort = forms.ChoiceField(
        label=_("Effort of thinking"),
        required=False,
        choices=EFFORTS,
        help_text=_("Models that cannot think ignore it."),
    )

    class Meta:
        model = Conversation
        fields = ["instructions"]
        labels = {"instructions": _("Instructions")}
        help_texts = {
            "instructions": _(
                "They replace those of the folder, the preset and the site in this"
                " conversation. Your own instructions from the settings still count."
            )
        }
        widgets = {"instructions": forms.Textarea(attrs={"rows": 6, "dir": "auto"})}

    field_order = ["instructions", "effort"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        instructions: Any = self.fields["instructions"]
        instructions.required = False
        instructions.max_length = settings.MAX_INPUT_SIZE
        instructions.strip = False
        effort = effort_of(self.instance.options)
        field: Any = self.fields["effort"]
        if effort not in dict(EFFORTS):  # a program has set it
            field.choices = [*EFFORTS, (effort, effort)]
        self.initial["effort"] = effort

    def clean_instructions(self) -> str:
        text: str = self.cleaned_data["instructions"]
        if len(text.encode()) > settings.MAX_INPUT_SIZE:
            raise forms.ValidationError(_("The instructions are too long."))
        return text if text.strip() else ""

    def save(self, commit: bool = True) -> Any:
        row = self.instance
        row.options = with_effort(row.options, self.cleaned_data["effort"])
        row.save(update_fields=["instructions", "options"])
        return row
