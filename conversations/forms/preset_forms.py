"""Admin forms of presets and context sources."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from conversations.context import source_functions
from conversations.models.preset import ContextSource, Preset
from conversations.models.staff.versions import MAX_NOTE
from llm.forms.fields import FullNameField, JSONObjectField, OneFullNameField
from tools.forms import (
    CODE_ATTRIBUTES,
    SERVER_WIDGETS,
    SecretHeadersForm,
    find_user,
)


class NotedForm(forms.ModelForm):
    """A form whose note is stored with the version that saving it makes."""

    note = forms.CharField(
        required=False,
        max_length=MAX_NOTE,
        label=_("Note"),
        help_text=_("What you change and why; shown in the list of versions."),
        widget=forms.TextInput({"size": 80, "class": "vLargeTextField"}),
    )


class PresetForm(NotedForm):
    class Meta:
        model = Preset
        fields = [
            "name",
            "label",
            "description",
            "enabled",
            "is_default",
            "instructions",
            "language_model",
            "allowed_models",
            "options",
            "tools",
            "only_named_tools",
            "max_tokens",
            "max_cost",
            "max_tool_calls",
            "groups",
            "owner_group",
        ]
        field_classes = {
            "options": JSONObjectField,
            "language_model": OneFullNameField,
            "allowed_models": FullNameField,
        }
        widgets = {
            "options": forms.Textarea({"rows": 4, **CODE_ATTRIBUTES}),
            "description": forms.TextInput({"size": 80, "class": "vLargeTextField"}),
        }

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("tools"):
            cleaned["only_named_tools"] = True
        return cleaned


class ContextSourceForm(SecretHeadersForm):
    class Meta:
        model = ContextSource
        fields = [
            "name",
            "title",
            "kind",
            "enabled",
            "on_demand",
            "text",
            "function",
            "url",
            "headers",
            "pointer",
            "networks",
            "mcp_server",
            "uri",
            "max_size",
            "timeout",
            "cache_seconds",
        ]
        field_classes = {"headers": JSONObjectField}
        widgets = {
            **SERVER_WIDGETS,
            "uri": forms.TextInput({"size": 80, "class": "vLargeTextField"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "function" not in self.fields:  # the user has only the view permission
            return
        known = {*source_functions(), *filter(None, [self.instance.function])}
        choices = [("", "---------"), *((path, path) for path in sorted(known))]
        self.fields["function"].widget = forms.Select(choices=choices)


class ContextSourceTrialForm(forms.Form):
    """The user for whom a context source is tried."""

    username = forms.CharField(label=_("As the user"))

    def __init__(self, *args: Any, user: Any, may_choose: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].initial = user.get_username()
        self._user = user
        self._may_choose = may_choose
        if not may_choose:
            field = self.fields["username"]
            field.disabled = True
            field.help_text = _("You may not read this source as another user.")

    def clean_username(self) -> Any:
        """Return the user, not the name."""
        if not self._may_choose:
            return self._user
        return find_user(self.cleaned_data["username"])
