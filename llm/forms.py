from __future__ import annotations

import json
from typing import Any

from django import forms
from django.forms.fields import InvalidJSONInput

from llm.models import ApiKey


class ObjectField(forms.JSONField):
    """A JSON object, indented for reading."""

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, InvalidJSONInput):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False) if value else ""


class FullNameField(forms.ModelMultipleChoiceField):
    """Models, told apart by their providers."""

    def label_from_instance(self, obj: Any) -> str:
        return str(obj.full_name)


class ApiKeyForm(forms.ModelForm):
    class Meta:
        model = ApiKey
        fields = ["provider", "label", "secret", "state", "weight", "rest_until"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "secret" in self.fields:
            self.fields["secret"].required = not self.instance.secret
