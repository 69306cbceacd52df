"""Admin forms of tools: settings, secret headers, dry runs and OpenAPI imports."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django import forms
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from llm.forms.fields import JSONObjectField, is_storable_json
from llm.forms.secret_headers import HeaderLinesField
from llm.wire.json_pointer import format_path
from tools.errors import InvalidDocument
from tools.http.openapi import OpenApiOperation, read_operations
from tools.http.openapi_document import MAX_DOCUMENT, read_document
from tools.http.validation import header_problems, url_problems
from tools.json_schema.arguments import Path
from tools.json_schema.line_numbers import line_of
from tools.json_schema.schema_mistakes import rule_mistakes, schema_mistakes
from tools.models import HttpTool, Tool
from tools.models.async_results import ASYNC_FIELDS
from tools.validators import raise_validation_errors, validate_networks

MAX_IMPORTED = 200  # operations at once
INSPECT = "conversations.inspect_turn"  # who may read what others have written

#: HTML attributes of a text area with JSON, code or lists.
CODE_ATTRIBUTES = {
    "cols": 80,
    "spellcheck": "false",
    "class": "vLargeTextField tool-code",
}
#: Widgets of the fields that say where a server is.
SERVER_WIDGETS = {
    "url": forms.TextInput({"size": 80, "class": "vLargeTextField"}),
    "headers": forms.Textarea({"rows": 3, **CODE_ATTRIBUTES}),
    "networks": forms.Textarea({"rows": 2, **CODE_ATTRIBUTES}),
}


Mistakes = Callable[[Any], Iterable[tuple[Path, str]]]


def get_form_data(request: HttpRequest) -> tuple[Any, ...]:
    """The arguments that bind a form to a POST; none for any other method."""
    return (request.POST, request.FILES) if request.method == "POST" else ()


def find_user(name: str) -> Any:
    """Raises ValidationError."""
    model = get_user_model()
    rows = model._default_manager.filter(**{model.USERNAME_FIELD: name})
    if (user := rows.first()) is None:
        raise ValidationError(_("There is no such user."))
    return user


class CodeField(forms.JSONField):
    """JSON written by hand; error messages have the line and the path."""

    widget = forms.Textarea({"rows": 16, **CODE_ATTRIBUTES})

    def __init__(self, *args: Any, mistakes: Mistakes | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._mistakes = mistakes

    def to_python(self, value: Any) -> Any:
        if not (value or "").strip():
            return None
        try:
            parsed = json.loads(value)
        except json.JSONDecodeError as exc:
            raise ValidationError(
                _("Line %(line)d, column %(column)d: %(text)s."),
                params={"line": exc.lineno, "column": exc.colno, "text": exc.msg},
            ) from exc
        except RecursionError as exc:
            raise ValidationError(_("This is nested too deeply.")) from exc
        if not is_storable_json(value):
            raise ValidationError(
                _("This contains a number, character or nesting that cannot be stored.")
            )
        raise_validation_errors(
            f"Line {line_of(value, path)}, at {format_path(path)}: {text}."
            if path
            else f"{text[:1].upper()}{text[1:]}."
            for path, text in (self._mistakes(parsed) if self._mistakes else ())
        )
        return parsed

    def bound_data(self, data: Any, initial: Any) -> Any:
        """The text as it was typed, so that the line numbers in errors match it."""
        return initial if self.disabled else data

    def prepare_value(self, value: Any) -> Any:
        if value is None or isinstance(value, str):
            return value
        return json.dumps(value, indent=2, ensure_ascii=False)


class SchemaField(CodeField):
    """A JSON Schema of arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, mistakes=schema_mistakes, **kwargs)

    def to_python(self, value: Any) -> Any:
        return super().to_python(value or "{}")


class SecretHeadersField(HeaderLinesField):
    """Secret headers of a request by a tool."""

    def check_headers(self, headers: dict[str, str]) -> None:
        raise_validation_errors(header_problems(headers))


class SecretHeadersForm(forms.ModelForm):
    """Form of a row with `SecretHeaders`: shows the names of stored headers, and adds
    the ones that are entered."""

    secret = SecretHeadersField(
        label=_("Secret headers"),
        required=False,
        help_text=_(
            "One per line, such as “Authorization: Bearer …”; stored encrypted and"
            " never shown again. Headers that you do not list keep their values; a name"
            " without a value is removed."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A user with only the view permission has no field for them.
        if "secret" in self.fields and (names := self.instance.secret_names):
            known = _("Currently set: %(names)s.") % {"names": ", ".join(names)}
            field = self.fields["secret"]
            field.help_text = f"{field.help_text} {known}"
            if why := self.instance.why_headers_not_sent:
                warning = format_html('<strong class="tool-bad">{}</strong>', why)
                field.help_text = format_html("{} {}", field.help_text, warning)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if headers := cleaned.get("secret"):
            # The URL first: stored headers must not be sent to another origin.
            self.instance.url = cleaned.get("url", self.instance.url)
            self.instance.set_secret_headers(headers)
        return cleaned


class ToolForm(forms.ModelForm):
    """Form for tools of every kind; the admin page shows the fields of one kind."""

    approval_rule = CodeField(
        label=_("Rule"),
        required=False,
        mistakes=rule_mistakes,
        widget=forms.Textarea({"rows": 6, **CODE_ATTRIBUTES}),
        help_text=_(
            "JSON Schema: a call whose arguments fit it needs approval. More than 100:"
            ' {"properties": {"euros": {"exclusiveMinimum": 100}},'
            ' "required": ["euros"]}. A call also needs it if its arguments are too'
            " long or too deep to be judged. Arguments left out count with their"
            " defaults."
        ),
    )
    definition = CodeField(
        widget=forms.Textarea({"rows": 8, **CODE_ATTRIBUTES}),
        help_text=_(
            "Tool definition in the form of the Responses API. It is sent to models of"
            " several providers; leave out fields that only one of them supports."
        ),
    )

    kind: str = Tool.Kind.HTTP  # of a new tool

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk is None:
            self.instance.kind = self.kind
        kind = self.instance.kind
        # Declared form fields exist even if the page's fieldsets omit them.
        other = "approval_rule" if kind == Tool.Kind.HOSTED else "definition"
        self.fields.pop(other, None)
        if kind == Tool.Kind.HTTP and "description" in self.fields:
            self.fields["description"].required = True
        for name, unset in _EMPTY_LABELS.get(
            kind, _EMPTY_LABELS[Tool.Kind.PYTHON]
        ).items():
            if name in self.fields:
                self._set_empty_label(name, str(unset))
        if self.instance.runs_unasked and "approval" in self.fields:
            unset = _("never (existing tool); choose a policy")
            self._set_empty_label("approval", str(unset))

    def _set_empty_label(self, name: str, unset: str) -> None:
        field: Any = self.fields[name]
        options = [each for each in field.choices if each[0] not in ("", None)]
        field.choices = [("", unset), *options]


#: The labels of the empty choice.
_EMPTY_LABELS = {
    Tool.Kind.HTTP: {
        "replay": _("according to its HTTP method"),
        "blocking": _("waits for the result, unless it is asynchronous"),
        "approval": _("always, except for GET and HEAD"),
    },
    Tool.Kind.MCP: {
        "replay": _("according to its server"),
        "blocking": _("waits for the result"),
        "approval": _("always, except for tools that the server marks read-only"),
    },
    Tool.Kind.PYTHON: {
        "replay": _("according to its code"),
        "blocking": _("according to its code"),
        "approval": _("according to its code"),
    },
}


class HttpToolForm(SecretHeadersForm):
    parameters = SchemaField(label=_("Arguments"))

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
            *ASYNC_FIELDS,
        ]
        field_classes = {"places": JSONObjectField, "headers": JSONObjectField}
        widgets = {
            **SERVER_WIDGETS,
            "places": forms.Textarea({"rows": 3, **CODE_ATTRIBUTES}),
            "max_size": forms.NumberInput({"class": "vBigIntegerField"}),
            "job_url": forms.TextInput({"size": 80, "class": "vLargeTextField"}),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "parameters" not in self.fields:  # the user has only the view permission
            return
        parameters = HttpTool._meta.get_field("parameters")
        self.fields["parameters"].help_text = parameters.help_text
        self.fields["parameters"].initial = parameters.get_default()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        self.instance.has_invalid_fields = bool(self.errors)
        return cleaned


class DryRunForm(forms.Form):
    username = forms.CharField(
        label=_("As the user"),
        help_text=_("Name of the user for whom the call is made."),
    )
    arguments = forms.CharField(
        label=_("Arguments"),
        strip=False,
        widget=forms.Textarea({"rows": 10, **CODE_ATTRIBUTES}),
        help_text=_(
            "JSON, as a model would write it. Errors are reported as to a model."
        ),
    )

    def __init__(self, *args: Any, tool: Tool, tester: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tool, self._tester = tool, tester

    def clean_username(self) -> Any:
        """The user."""
        user = find_user(self.cleaned_data["username"])
        allowed = Tool.objects.filter(pk=self._tool.pk).visible_to(user)
        if not user.is_active or not allowed.exists():
            raise ValidationError(_("This user may not use the tool."))
        # Tools read a user's memories and conversations, and write memories.
        if user != self._tester and not self._tester.has_perm(INSPECT):
            raise ValidationError(_("You may try tools only as yourself."))
        return user


class DocumentForm(forms.Form):
    """An OpenAPI document, uploaded or pasted."""

    file = forms.FileField(label=_("File"), required=False)
    document = forms.CharField(
        label=_("Or paste its text"),
        required=False,
        strip=False,
        widget=forms.Textarea({"rows": 12, **CODE_ATTRIBUTES}),
        help_text=_("OpenAPI 3.0 or 3.1, JSON or YAML."),
    )
    base_url = forms.CharField(
        label=_("Address of the API"),
        required=False,
        widget=forms.TextInput({"size": 80}),
        help_text=_("Empty for the server in the document."),
    )

    def clean_base_url(self) -> str:
        base_url: str = self.cleaned_data["base_url"].strip()
        raise_validation_errors(url_problems(base_url) if base_url else ())
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

    def operations(self) -> list[OpenApiOperation]:
        return read_operations(self.cleaned_data["read"], self.cleaned_data["base_url"])


class OperationsForm(forms.Form):
    """Choice of the operations of an OpenAPI document that become tools."""

    document = forms.CharField(strip=False, widget=forms.HiddenInput)
    base_url = forms.CharField(required=False, widget=forms.HiddenInput)
    operations = forms.MultipleChoiceField(
        error_messages={"required": _("Choose at least one operation.")}
    )
    secret = SecretHeadersField(
        label=_("Secret headers for all of them"),
        required=False,
        help_text=_("One per line, such as “Authorization: Bearer …”."),
    )
    networks = forms.CharField(
        label=_("Allowed networks for all of them"),
        required=False,
        widget=forms.Textarea({"rows": 2, **CODE_ATTRIBUTES}),
        validators=[validate_networks],
        help_text=_("Private networks, one per line; usually none is needed."),
    )

    def __init__(
        self, *args: Any, found: Sequence[OpenApiOperation], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        names = [operation.name for operation in found]
        taken = set(Tool.objects.filter(name__in=names).values_list("name", flat=True))
        self.found = [(each, _find_import_problem(each, taken)) for each in found]
        choices = [(each.key, each.key) for each, why_not in self.found if not why_not]
        field = self.fields["operations"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = choices

    def clean_operations(self) -> list[OpenApiOperation]:
        chosen = set(self.cleaned_data["operations"])
        if len(chosen) > MAX_IMPORTED:
            text = _("Choose at most %(most)d at once.")
            raise ValidationError(text, params={"most": MAX_IMPORTED})
        return [each for each, why_not in self.found if each.key in chosen]


def _find_import_problem(operation: OpenApiOperation, taken: set[str]) -> str:
    if operation.problem:
        return operation.problem
    if operation.name in taken:
        return str(_("there is already a tool with this name."))
    return ""
