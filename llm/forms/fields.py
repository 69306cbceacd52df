"""Form fields for JSON, models and API keys."""

from __future__ import annotations

import json
from typing import Any

import orjson
from django import forms
from django.contrib.admin.widgets import FilteredSelectMultiple
from django.core.exceptions import ValidationError

from llm.models import ApiKey
from llm.wire.sanitize import NUL, sanitize_json

_MAX_ID_LENGTH = 18  # digits of a primary key


def is_storable_json(text: str) -> bool:
    """Whether databases and providers accept this JSON: no NaN, no NUL, no half of a
    surrogate pair, no number beyond the machine types, at most 254 levels of nesting.
    """
    try:
        value = orjson.loads(text)
        return NUL not in orjson.dumps(value) or sanitize_json(value) == value
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return False


class _RawInput(str):
    """Text of a user that is no JSON; the page shows it as it was entered."""

    __slots__ = ()


class StrictJSONField(forms.JSONField):
    """Refuses what SQLite refuses and nesting too deep for Django's own field."""

    def to_python(self, value: Any) -> Any:
        if self._is_user_input(value) and not is_storable_json(value):
            raise ValidationError(
                self.error_messages["invalid"], code="invalid", params={"value": value}
            )
        return super().to_python(value)

    def bound_data(self, data: Any, initial: Any) -> Any:
        if self._is_user_input(data) and not is_storable_json(data):
            return _RawInput(data)
        return super().bound_data(data, initial)

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, _RawInput) else super().prepare_value(value)

    def _is_user_input(self, value: Any) -> bool:
        """Whether it is text from a user, neither empty nor parsed already."""
        is_text = type(value) is str  # Django parses a JSON string to a subclass
        return is_text and not self.disabled and value not in self.empty_values


class JSONObjectField(StrictJSONField):
    """A JSON object, indented for reading."""

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, _RawInput):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False) if value else ""


class FullNameField(forms.ModelMultipleChoiceField):
    """Models, labelled with their provider's name."""

    def clean(self, value: Any) -> Any:
        for each in value or ():
            if len(str(each)) > _MAX_ID_LENGTH:  # databases refuse larger numbers
                raise ValidationError(
                    self.error_messages["invalid_choice"],
                    code="invalid_choice",
                    params={"value": str(each)[:_MAX_ID_LENGTH]},
                )
        return super().clean(value)

    def label_from_instance(self, obj: Any) -> str:
        return str(obj.full_name)


class FullNamesInOrderField(FullNameField):
    """Models in the order in which they were chosen."""

    def clean(self, value: Any) -> Any:
        places = {str(key): at for at, key in enumerate(value or ())}
        return sorted(
            super().clean(value), key=lambda model: places.get(str(model.pk), 0)
        )

    def has_changed(self, initial: Any, data: Any) -> bool:
        before = [str(key) for key in self.prepare_value(initial or [])]
        return before != [str(key) for key in data or []]


class SelectInOrder(FilteredSelectMultiple):
    """Shows the chosen options first, in their order: the script of the admin keeps it
    while they are moved, and sends it."""

    def optgroups(self, name: str, value: Any, attrs: Any = None) -> Any:
        places = {key: at for at, key in enumerate(value)}
        groups = super().optgroups(name, value, attrs)
        return sorted(
            groups, key=lambda group: places.get(str(group[1][0]["value"]), len(places))
        )


class OneFullNameField(forms.ModelChoiceField):
    """One model, labelled with its provider's name."""

    def label_from_instance(self, obj: Any) -> str:
        return str(obj.full_name)


class _ShownField(forms.BoundField):
    """When a form is shown again with an error, its hidden field repeats what the first
    page showed. Django's would have the entered value, which then counts as
    unchanged."""

    def as_hidden(self, attrs: Any = None, **kwargs: Any) -> Any:
        if not (kwargs.get("only_initial") and self.form.is_bound):
            return super().as_hidden(attrs, **kwargs)
        widget, name = self.field.hidden_widget(), self.html_initial_name
        shown = widget.value_from_datadict(self.form.data, self.form.files, name)
        attrs = {"id": self.html_initial_id, **(attrs or {})}
        return widget.render(name, shown, attrs, self.form.renderer)


class SwitchesForm(forms.ModelForm):
    """Changes a switch only if it differs from what its page has shown, so that an old
    page does not take back what Parley or others have set since."""

    bound_field_class = _ShownField
    switches = ("enabled", "is_default", "state", "weight", "rest_until", "drains_at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shown = [name for name in self.switches if name in self.fields]
        for name in self._shown:
            self.fields[name].show_hidden_initial = self._says_what_it_showed(name)

    def _says_what_it_showed(self, name: str) -> bool:
        """Whether the page has hidden fields with what it showed: one that is being
        made has, and so has a browser's form. A program's request need not have
        them."""
        beginning = self.add_initial_prefix(name)
        return not self.is_bound or any(key.startswith(beginning) for key in self.data)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        for name in self._shown:
            is_stored = self.instance.pk is not None
            if is_stored and name not in self.changed_data and name in cleaned:
                cleaned[name] = getattr(self.instance, name)
        return cleaned


class ApiKeyForm(SwitchesForm):
    class Meta:
        model = ApiKey
        fields = [
            "provider",
            "label",
            "secret",
            "state",
            "weight",
            "rest_until",
            "expires_at",
            "drains_at",
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "secret" in self.fields:
            self.fields["secret"].required = not self.instance.secret

    def save(self, commit: bool = True) -> Any:
        """Save the key; a decision of staff replaces the state set by errors."""
        key, changed = self.instance, {*self.changed_data}
        if "state" in changed:
            key.state_reason = ""
            if key.state == key.State.ACTIVE:
                key.forget_refusals()
        elif "secret" in changed and (
            key.state == key.State.RESTING or key.is_disabled_automatically
        ):
            key.forget_refusals()  # they were about the previous key
        return super().save(commit)
