from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from llm.forms import ObjectField
from tools.arguments import spelled
from tools.errors import InvalidDocument
from tools.http.checks import header_problems, url_problems
from tools.http.openapi import MAX_DOCUMENT, Operation, operations, read_document
from tools.json_places import line_of
from tools.models import HttpTool, Tool, raise_wrong, validate_networks
from tools.parameters import schema_mistakes

MAX_IMPORTED = 200  # operations at once

_CODE = {"cols": 80, "spellcheck": "false", "class": "vLargeTextField tool-code"}


class SchemaField(forms.JSONField):
    """A JSON Schema; its mistakes are told with line and path."""

    widget = forms.Textarea({"rows": 16, **_CODE})

    def to_python(self, value: Any) -> Any:
        try:
            schema = json.loads(value or "{}")
        except json.JSONDecodeError as exc:
            raise ValidationError(
                _("Line %(line)d, column %(column)d: %(text)s."),
                params={"line": exc.lineno, "column": exc.colno, "text": exc.msg},
            ) from exc
        except RecursionError as exc:
            raise ValidationError(_("This is nested too deeply.")) from exc
        raise_wrong(
            f"Line {line_of(value, path)}, at {spelled(path)}: {text}."
            if path
            else f"{text[:1].upper()}{text[1:]}."
            for path, text in schema_mistakes(schema)
        )
        return schema

    def bound_data(self, data: Any, initial: Any) -> Any:
        """As it was typed: the lines that are told must be there to see."""
        return initial if self.disabled else data

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False)


class SecretTextarea(forms.Textarea):
    """Shows nothing, not even what was just typed."""

    def format_value(self, value: Any) -> str:
        return ""


class SecretHeadersField(forms.CharField):
    """Lines such as `Authorization: Bearer …`, as a dict. Write-only."""

    widget = SecretTextarea({**_CODE, "rows": 3, "autocomplete": "off"})

    def clean(self, value: Any) -> dict[str, str]:
        headers: dict[str, str] = {}
        for number, line in enumerate((value or "").splitlines(), start=1):
            name, colon, text = line.partition(":")
            if line.strip() and not colon:
                raise ValidationError(
                    _("Line %(line)d: write a name, a colon and a value."),
                    params={"line": number},
                )
            if colon:
                headers[name.strip()] = text.strip()
        raise_wrong(header_problems(headers))
        return headers


class ToolForm(forms.ModelForm):
    """Only HTTP tools are made by hand."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is None:
            self.instance.kind = Tool.Kind.HTTP
        if self.instance.kind == Tool.Kind.HTTP and "description" in self.fields:
            self.fields["description"].required = True


class HttpToolForm(forms.ModelForm):
    parameters = SchemaField(label=_("Arguments"))
    secret = SecretHeadersField(
        label=_("Secret headers"),
        required=False,
        help_text=_(
            "One a line, such as “Authorization: Bearer …”; encrypted, and never shown"
            " again. Those you do not name stay; a name with nothing behind its colon"
            " is removed."
        ),
    )

    class Meta:
        model = HttpTool
        fields = [
            "method",
            "url",
            "parameters",
            "places",
            "body",
            "headers",
            "read_as",
            "pointer",
            "max_size",
            "networks",
        ]
        field_classes = {"places": ObjectField, "headers": ObjectField}
        widgets = {
            "url": forms.TextInput({"size": 80, "class": "vLargeTextField"}),
            "places": forms.Textarea({"rows": 3, **_CODE}),
            "headers": forms.Textarea({"rows": 3, **_CODE}),
            "max_size": forms.NumberInput({"class": "vBigIntegerField"}),
            "networks": forms.Textarea({"rows": 2, **_CODE}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "parameters" not in self.fields:  # for who may only look
            return
        parameters = HttpTool._meta.get_field("parameters")
        self.fields["parameters"].help_text = parameters.help_text
        self.fields["parameters"].initial = parameters.get_default()
        if names := self.instance.secret_names:
            known = _("Set now: %(names)s.") % {"names": ", ".join(names)}
            self.fields[
                "secret"
            ].help_text = f"{self.fields['secret'].help_text} {known}"

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if headers := cleaned.get("secret"):
            self.instance.set_secret_headers(headers)
        return cleaned

    def _post_clean(self) -> None:
        if not self.errors:  # one thing after another: these check all together
            super()._post_clean()  # type: ignore[misc]


class DryRunForm(forms.Form):
    username = forms.CharField(
        label=_("As the user"), help_text=_("Whose name; the call is made for them.")
    )
    arguments = forms.CharField(
        label=_("Arguments"),
        strip=False,
        widget=forms.Textarea({"rows": 10, **_CODE}),
        help_text=_(
            "JSON, as a model would write it. Mistakes are told as to a model."
        ),
    )

    def __init__(self, *args: Any, tool: Tool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tool = tool

    def clean_username(self) -> Any:
        """The user."""
        users = get_user_model()._default_manager
        name = {get_user_model().USERNAME_FIELD: self.cleaned_data["username"]}
        if (user := users.filter(**name).first()) is None:
            raise ValidationError(_("There is no such user."))
        allowed = Tool.objects.filter(pk=self._tool.pk).permitted(user)
        if not user.is_active or not allowed.exists():
            raise ValidationError(_("This user may not use the tool."))
        return user


class DocumentForm(forms.Form):
    """An OpenAPI document, uploaded or pasted."""

    file = forms.FileField(label=_("File"), required=False)
    document = forms.CharField(
        label=_("Or its text"),
        required=False,
        strip=False,
        widget=forms.Textarea({"rows": 12, **_CODE}),
        help_text=_("OpenAPI 3.0 or 3.1, JSON or YAML."),
    )
    base_url = forms.CharField(
        label=_("Address of the API"),
        required=False,
        widget=forms.TextInput({"size": 80}),
        help_text=_("Empty for the server that the document names."),
    )

    def clean_base_url(self) -> str:
        base_url: str = self.cleaned_data["base_url"].strip()
        raise_wrong(url_problems(base_url) if base_url else ())
        return base_url

    def clean(self) -> dict[str, Any]:
        cleaned = self.cleaned_data
        if file := cleaned.get("file"):
            if file.size > MAX_DOCUMENT:
                raise ValidationError(_("The document is too large."))
            cleaned["document"] = file.read().decode(errors="replace")
        if not (text := cleaned.get("document")):
            raise ValidationError(_("Choose a file, or paste its text."))
        if len(text) > MAX_DOCUMENT:
            raise ValidationError(_("The document is too large."))
        try:
            cleaned["read"] = read_document(text)
        except InvalidDocument as exc:
            raise ValidationError(str(exc)) from exc
        return cleaned

    def operations(self) -> list[Operation]:
        return operations(self.cleaned_data["read"], self.cleaned_data["base_url"])


class OperationsForm(forms.Form):
    """Which operations of a document that was read become tools."""

    document = forms.CharField(strip=False, widget=forms.HiddenInput)
    base_url = forms.CharField(required=False, widget=forms.HiddenInput)
    operations = forms.MultipleChoiceField(
        error_messages={"required": _("Choose at least one operation.")}
    )
    secret = SecretHeadersField(
        label=_("Secret headers of all of them"),
        required=False,
        help_text=_("One a line, such as “Authorization: Bearer …”."),
    )
    networks = forms.CharField(
        label=_("Allowed networks of all of them"),
        required=False,
        widget=forms.Textarea({"rows": 2, **_CODE}),
        validators=[validate_networks],
        help_text=_("Private networks, one a line; mostly none is needed."),
    )

    def __init__(self, *args: Any, found: Sequence[Operation], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [operation.name for operation in found]
        taken = set(Tool.objects.filter(name__in=names).values_list("name", flat=True))
        self.found = [(each, _why_not(each, taken)) for each in found]
        choices = [(each.key, each.key) for each, why_not in self.found if not why_not]
        self.fields["operations"].choices = choices  # type: ignore[attr-defined]

    def clean_operations(self) -> list[Operation]:
        chosen = set(self.cleaned_data["operations"])
        if len(chosen) > MAX_IMPORTED:
            text = _("Choose no more than %(most)d at once.")
            raise ValidationError(text, params={"most": MAX_IMPORTED})
        return [each for each, why_not in self.found if each.key in chosen]


def _why_not(operation: Operation, taken: set[str]) -> str:
    if operation.problem:
        return operation.problem
    if operation.name in taken:
        return str(_("there is a tool of this name."))
    return ""
