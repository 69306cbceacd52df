"""Forms in which users set things for themselves, one for each section."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from conversations.models.keyboard_shortcuts import (
    ACTIONS,
    MAX_KEY,
    keys_of,
    validate_shortcuts,
)
from conversations.models.saved_prompt import MAX_COUNT, SavedPrompt
from conversations.models.user_settings import UserSettings
from llm import router


class _SettingsForm(forms.ModelForm):
    """A page of settings, which saves its own fields only."""

    def save(self, commit: bool = True) -> Any:
        values = {name: getattr(self.instance, name) for name in self.fields}
        UserSettings.objects.change(self.instance.user_id, **values)
        return self.instance


class GeneralForm(_SettingsForm):
    class Meta:
        model = UserSettings
        fields = [
            "theme",
            "font_size",
            "language",
            "default_model",
            "notify_title",
            "notify_browser",
            "email_after_minutes",
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        models: Any = self.fields["default_model"]
        models.queryset = router.available(self.instance.user)
        models.empty_label = _("The model used last")
        models.help_text = ""  # it explains the empty value, which has a label here
        if not (settings.SENDS_MAIL and self.instance.user.email):
            del self.fields["email_after_minutes"]


class PersonalForm(_SettingsForm):
    class Meta:
        model = UserSettings
        fields = ["custom_instructions", "memory_enabled"]
        widgets = {"custom_instructions": forms.Textarea(attrs={"dir": "auto"})}


class ShortcutsForm(forms.Form):
    """A field for the key of each action."""

    shortcuts_enabled = forms.BooleanField(
        required=False, label=_("Use keyboard shortcuts")
    )

    def __init__(self, data: Any = None, *, instance: UserSettings) -> None:
        keys = keys_of(instance.shortcuts)
        values = {**keys, "shortcuts_enabled": instance.shortcuts_enabled}
        super().__init__(data, initial=values)
        self.instance = instance
        for name, (label, _usual) in ACTIONS.items():
            self.fields[name] = forms.CharField(
                required=False,
                label=label,
                max_length=MAX_KEY,
                widget=forms.TextInput(
                    attrs={
                        "autocomplete": "off",
                        "autocapitalize": "none",
                        "spellcheck": "false",
                        "data-records-key": "",
                    }
                ),
            )

    def clean(self) -> dict[str, Any]:
        if not self.errors:
            try:
                validate_shortcuts(self._changed())
            except ValidationError as exc:
                self.add_error(None, exc)
        return self.cleaned_data

    def save(self) -> None:
        UserSettings.objects.change(
            self.instance.user_id,
            shortcuts=self._changed(),
            shortcuts_enabled=self.cleaned_data["shortcuts_enabled"],
        )

    def _changed(self) -> dict[str, str]:
        """The keys that are not the usual ones."""
        chosen = {name: self.cleaned_data[name] for name in ACTIONS}
        return {n: key for n, key in chosen.items() if key != ACTIONS[n][1]}


class SavedPromptForm(forms.ModelForm):
    class Meta:
        model = SavedPrompt
        fields = ["name", "title", "text"]
        widgets = {
            "name": forms.TextInput(
                attrs={"autocomplete": "off", "autocapitalize": "none"}
            ),
            "title": forms.TextInput(attrs={"dir": "auto", "autocomplete": "off"}),
            "text": forms.Textarea(attrs={"dir": "auto"}),
        }

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        others = self._theirs().filter(name=name).exclude(pk=self.instance.pk)
        if others.exists():
            raise ValidationError(_("You have a prompt of this name already."))
        return name

    def clean(self) -> dict[str, Any]:
        if self.instance.pk is None and self._theirs().count() >= MAX_COUNT:
            raise ValidationError(
                _("You have %(count)s prompts already; delete one first."),
                params={"count": MAX_COUNT},
            )
        return super().clean() or self.cleaned_data

    def save_once(self) -> SavedPrompt | None:
        """None, with an error, where another tab has just taken the name."""
        try:
            with transaction.atomic():
                saved: SavedPrompt = self.save()
                return saved
        except IntegrityError:
            self.add_error("name", _("You have a prompt of this name already."))
        return None

    def _theirs(self) -> QuerySet[SavedPrompt]:
        return SavedPrompt.objects.filter(owner=self.instance.owner_id)


class VariablesForm(forms.Form):
    """A field for each variable of a prompt."""

    def __init__(self, data: Any = None, *, prompt: SavedPrompt) -> None:
        super().__init__(data)
        self._names = {f"v{n}": name for n, name in enumerate(prompt.variables)}
        for field, name in self._names.items():
            self.fields[field] = forms.CharField(
                label=name,
                max_length=10_000,
                strip=False,
                widget=forms.Textarea(attrs={"rows": 1, "dir": "auto"}),
            )

    @property
    def values(self) -> dict[str, str]:
        return {
            name: self.cleaned_data[field].replace("\r\n", "\n")
            for field, name in self._names.items()
        }
