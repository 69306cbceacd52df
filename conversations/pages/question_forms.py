"""Django forms of questions: the approval of a call, or a form that a tool requests.

A tool's form is a flat JSON Schema; `fields_of` converts it to Django form fields. The
submitted values are converted back to JSON, and `Question.decide` validates them
against the schema.

Source: https://modelcontextprotocol.io/specification/2025-06-18/client/elicitation
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, cast

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.text import capfirst
from django.utils.translation import gettext

from conversations import engine
from conversations.models import Question
from conversations.models.question import Action
from conversations.turns.tool_display import pretty
from llm.forms.fields import StrictJSONField, is_storable_json
from llm.wire.json_schema.validation import compile_schema
from tools.json_schema.arguments import mistakes

NOTE_LENGTH = 500  # characters


class QuestionForm(forms.Form):
    """The fields that all questions have: the action and a note."""

    action = forms.ChoiceField(choices=[("accept", ""), ("decline", "")])
    note = forms.CharField(required=False, max_length=NOTE_LENGTH)

    def __init__(self, data: Any = None, *, question: Question) -> None:
        # A page can show several questions whose fields have the same names.
        super().__init__(data, auto_id=f"question-{question.pk}-%s")
        self.question = question

    @property
    @abstractmethod
    def answer(self) -> dict[str, Any]:
        """The keyword arguments of `Question.decide` besides action and note."""

    def decide(self, user: Any) -> bool:
        """Decide the question. False if the answer is invalid; the errors are added.

        Raises AlreadyDecided.
        """
        chosen = self.cleaned_data["action"]
        action: Action = "accept" if chosen == "always" else chosen
        answer = self.answer if action == "accept" else {}
        if chosen == "always":
            answer["always"] = True
        try:
            is_turn_ready = self.question.decide(
                user, action, note=self.cleaned_data["note"], **answer
            )
        except ValidationError as exc:
            self.add_error(None, [capfirst(words) for words in exc.messages])
            return False
        if is_turn_ready:
            turn = self.question.tool_call.turn
            engine.submit(turn.pk, turn.conversation_id, owner=user.pk)
        engine.notify_decision(self.question)
        engine.announce_decision(self.question)
        return True

    def _is_declined(self) -> bool:
        return self.data.get("action") in ("decline", "cancel")


class ApprovalForm(QuestionForm):
    action = forms.ChoiceField(
        choices=[("accept", ""), ("always", ""), ("decline", "")]
    )
    arguments = forms.CharField(
        required=False,
        widget=forms.Textarea(
            attrs={"spellcheck": "false", "autocomplete": "off", "data-json": ""}
        ),
    )

    def __init__(self, data: Any = None, *, question: Question) -> None:
        super().__init__(data, question=question)
        text = pretty(question.written_arguments or {})
        self.initial["arguments"] = text
        self.fields["arguments"].widget.attrs["rows"] = min(16, text.count("\n") + 2)

    def clean_arguments(self) -> dict[str, Any] | None:
        """The edited arguments; None if they are unchanged."""
        text = self.cleaned_data["arguments"]
        if self._is_declined() or not text.strip():
            return None
        try:
            arguments = json.loads(text)
        except (ValueError, RecursionError) as exc:
            line = getattr(exc, "lineno", 0)
            problem = gettext("The arguments are not valid JSON.")
            if line:
                words = gettext("The arguments are not valid JSON (line %(line)s).")
                problem = words % {"line": line}
            raise ValidationError(problem) from exc
        if not isinstance(arguments, dict):
            raise ValidationError(gettext("The arguments must be a JSON object."))
        if not is_storable_json(text):
            raise ValidationError(
                gettext("The arguments contain a number that JSON does not allow.")
            )
        return None if arguments == self.question.arguments else arguments

    @property
    def answer(self) -> dict[str, Any]:
        return {"arguments": self.cleaned_data["arguments"]}


class SchemaForm(QuestionForm):
    """The fields of a tool's form, each named `content-…`."""

    action = forms.ChoiceField(
        choices=[("accept", ""), ("decline", ""), ("cancel", "")]
    )

    def __init__(self, data: Any = None, *, question: Question) -> None:
        super().__init__(data, question=question)
        if self._is_declined():
            return  # a declined form needs no values
        for name, field in fields_of(question.schema or {}).items():
            self.fields[f"content-{name}"] = field

    def clean(self) -> dict[str, Any]:
        """Validate against the whole schema and add each error to its field."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors and not self._is_declined():
            validator = compile_schema(self.question.schema or {})
            errors = validator.iter_errors(self.answer["content"])
            for path, text in mistakes(errors):
                name = f"content-{path[0]}" if path else ""
                self.add_error(name if name in self.fields else None, text)
        return cleaned

    @property
    def tool_fields(self) -> list[Any]:
        """The bound fields that come from the tool's schema."""
        return [self[name] for name in self.fields if name.startswith("content-")]

    @property
    def answer(self) -> dict[str, Any]:
        content = {
            name.removeprefix("content-"): _as_json(value)
            for name, value in self.cleaned_data.items()
            if name.startswith("content-") and value not in (None, "", [])
        }
        return {"content": content}


class SignInForm(QuestionForm):
    """A sign-in is given at its server; the form declines it."""

    @property
    def answer(self) -> dict[str, Any]:
        return {}


_FORMS: dict[str, type[QuestionForm]] = {
    Question.Kind.APPROVAL: ApprovalForm,
    Question.Kind.FORM: SchemaForm,
    Question.Kind.SIGN_IN: SignInForm,
}


def form_for(question: Question, data: Any = None) -> QuestionForm:
    return _FORMS[question.kind](data, question=question)


# Fields of a schema


def fields_of(schema: Mapping[str, Any]) -> dict[str, forms.Field]:
    """A form field for each property. The later validation checks what no field can."""
    required = _list(schema.get("required"))
    return {
        name: _field(name, inner, name in required)
        for name, inner in _mapping(schema.get("properties")).items()
        if isinstance(inner, Mapping)
    }


def _field(name: str, schema: Mapping[str, Any], required: bool) -> forms.Field:
    common: dict[str, Any] = {
        "label": _text(schema.get("title")) or name.replace("_", " ").capitalize(),
        "help_text": _text(schema.get("description")),
        "required": required,
        "initial": schema.get("default"),
    }
    if options := _options(schema):
        blank = [] if required and schema.get("default") is not None else [("", "–")]
        return forms.TypedChoiceField(
            choices=[*blank, *_choices(options)],
            coerce=_choice_converter(options),
            **common,
        )
    match schema.get("type"):
        case "boolean":
            return forms.BooleanField(**{**common, "required": False})
        case "integer":
            return forms.IntegerField(**common, **_limits(schema))
        case "number":
            return forms.FloatField(**common, **_limits(schema))
        case "array" if options := _options(_mapping(schema.get("items"))):
            return forms.TypedMultipleChoiceField(
                choices=_choices(options),
                coerce=_choice_converter(options),
                widget=forms.CheckboxSelectMultiple,
                **common,
            )
        case "object" | "array":
            return StrictJSONField(**common)
    return _text_field(schema, common)


def _text_field(schema: Mapping[str, Any], common: dict[str, Any]) -> forms.Field:
    lengths: dict[str, Any] = {
        "min_length": _length(schema.get("minLength")),
        "max_length": _length(schema.get("maxLength")),
    }
    match schema.get("format"):
        case "email":
            return forms.EmailField(**common, **lengths)
        case "uri":
            return forms.URLField(**common, **lengths, assume_scheme="https")
        case "date":
            return forms.DateField(**common, widget=_picker("date"))
        case "date-time":
            zone = gettext("Time zone: %(zone)s.") % {"zone": settings.TIME_ZONE}
            common["help_text"] = f"{common['help_text']} {zone}".strip()
            return forms.DateTimeField(**common, widget=_picker("datetime-local"))
    widget = forms.TextInput(attrs={"dir": "auto"})
    return forms.CharField(**common, **lengths, strip=False, widget=widget)


def _picker(kind: str) -> forms.Widget:
    if kind == "date":
        widget: Any = forms.DateInput(format="%Y-%m-%d")
    else:
        widget = forms.DateTimeInput(format="%Y-%m-%dT%H:%M")
    widget.input_type = kind
    return cast(forms.Widget, widget)


def _options(schema: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """The values that a person may choose, with their names."""
    if options := _list(schema.get("oneOf")) or _list(schema.get("anyOf")):
        if all(isinstance(one, Mapping) and "const" in one for one in options):
            return [
                (one["const"], _text(one.get("title")) or str(one["const"]))
                for one in options
            ]
        return []
    values = _list(schema.get("enum"))
    names = _list(schema.get("enumNames"))
    if len(names) != len(values):
        names = values
    return [(value, str(name)) for value, name in zip(values, names, strict=True)]


def _choices(options: list[tuple[Any, str]]) -> list[tuple[str, str]]:
    return [(str(value), name) for value, name in options]


def _choice_converter(options: list[tuple[Any, str]]) -> Any:
    """A function that converts a posted choice to the schema's value.

    Form values are strings; the schema's value may be a number.
    """
    known = {str(value): value for value, _name in options}
    return lambda text: known.get(text, text)


def _limits(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "min_value": _number(schema.get("minimum")),
        "max_value": _number(schema.get("maximum")),
    }


def _as_json(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date | datetime) else value


# Keywords of a schema whose values may be of other types than they should be


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else None


def _length(value: Any) -> int | None:
    number = _number(value)
    return None if number is None else max(0, int(number))
