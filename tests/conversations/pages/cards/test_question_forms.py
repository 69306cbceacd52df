"""A tool's schema as a form: what is filled in comes back as the JSON that fits it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django import forms
from django.http import QueryDict
from django.template.loader import render_to_string
from hypothesis import given
from hypothesis import strategies as st

from conversations.models import Question
from conversations.pages.question_forms import (
    ApprovalForm,
    SchemaForm,
    fields_of,
    form_for,
)

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "email": {"type": "string", "format": "email"},
        "site": {"type": "string", "format": "uri"},
        "day": {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time"},
        "guests": {"type": "integer", "minimum": 1, "maximum": 12, "default": 2},
        "budget": {"type": "number"},
        "table": {"type": "string", "enum": ["w", "g"], "enumNames": ["Window", "G"]},
        "floor": {"type": "integer", "oneOf": [{"const": 1}, {"const": 2}]},
        "vegetarian": {"type": "boolean"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["wine"]}},
        "more": {"type": "object"},
    },
    "required": ["name", "guests", "vegetarian"],
}
FILLED = {
    "name": "Ada",
    "email": "ada@example.com",
    "site": "https://example.com/",
    "day": "2026-12-01",
    "at": "2026-12-01T19:30",
    "guests": "3",
    "budget": "12.5",
    "table": "w",
    "floor": "2",
    "vegetarian": "on",
    "extras": "wine",
    "more": '{"a": [1]}',
}


def sent(action: str = "accept", note: str = "", **fields: str) -> QueryDict:
    data = QueryDict(mutable=True)
    data.update({"action": action, "note": note})
    data.update({f"content-{name}": text for name, text in fields.items()})
    return data


def a_form(**fields: Any) -> Question:
    return Question(kind="form", schema=SCHEMA, **fields)


def an_approval() -> Question:
    return Question(kind="approval", arguments={"city": "Paris"}, schema={})


def test_each_property_has_its_field():
    found = fields_of(SCHEMA)
    assert list(found) == list(SCHEMA["properties"])
    assert found["name"].label == "Your name"
    assert found["guests"].initial == 2
    assert [found[name].required for name in ("name", "email", "vegetarian")] == [
        True,
        False,
        False,  # unticked is an answer
    ]
    kinds = {
        "email": forms.EmailField,
        "site": forms.URLField,
        "day": forms.DateField,
        "guests": forms.IntegerField,
        "more": forms.JSONField,
    }
    assert all(isinstance(found[name], kind) for name, kind in kinds.items())


def test_valid_form_data_fits_the_schema():
    form = form_for(a_form(), sent(**FILLED))
    assert form.is_valid(), form.errors
    assert form.answer == {
        "content": {
            "name": "Ada",
            "email": "ada@example.com",
            "site": "https://example.com/",
            "day": "2026-12-01",
            "at": "2026-12-01T19:30:00+00:00",
            "guests": 3,
            "budget": 12.5,
            "table": "w",
            "floor": 2,
            "vegetarian": True,
            "extras": ["wine"],
            "more": {"a": [1]},
        }
    }


def test_empty_fields_are_omitted():
    form = form_for(a_form(), sent(name="Ada", guests="2"))
    assert form.is_valid(), form.errors
    assert form.answer == {"content": {"name": "Ada", "guests": 2, "vegetarian": False}}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("name", ""),
        ("name", "A"),
        ("email", "nobody"),
        ("site", "javascript:alert(1)"),
        ("guests", "13"),
        ("guests", "two"),
        ("table", "roof"),
        ("day", "tomorrow"),
        ("more", "{"),
    ],
)
def test_an_invalid_value_is_reported_at_its_field(field: str, text: str):
    form = form_for(a_form(), sent(**{**FILLED, field: text}))
    assert not form.is_valid()
    assert set(form.errors) == {f"content-{field}"}


def test_a_value_only_the_schema_forbids_is_reported_at_its_field_too():
    properties = {"code": {"type": "string", "pattern": "^[A-Z]{3}$"}}
    schema = {"type": "object", "properties": properties}
    question = Question(kind="form", schema=schema)
    form = form_for(question, {"action": "accept", "content-code": "abc"})
    assert set(form.errors) == {"content-code"}
    assert form_for(question, {"action": "accept", "content-code": "ABC"}).is_valid()


def test_to_decline_nothing_needs_to_be_filled_in():
    form = form_for(a_form(), sent("decline", "no time"))
    assert form.is_valid()
    assert form.cleaned_data["note"] == "no time"


def test_a_schema_that_makes_no_sense_has_no_fields():
    assert fields_of({"properties": {"a": True}}) == {}
    assert isinstance(fields_of({"properties": {"a": {}}})["a"], forms.CharField)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"city": "Oslo"}', {"city": "Oslo"}),
        ('{ "city":"Paris" }', None),  # as the model wrote them
        ("", None),
    ],
)
def test_arguments_may_be_changed(text: str, arguments: Any):
    data = sent()
    data["arguments"] = text
    form = form_for(an_approval(), data)
    assert isinstance(form, ApprovalForm)
    assert form.is_valid(), form.errors
    assert form.answer == {"arguments": arguments}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{\n'city'", "The arguments are not valid JSON (line 2)."),
        ('{"city": 1e999}', "The arguments contain a number that JSON does not allow."),
        ("[1]", "The arguments must be a JSON object."),
    ],
)
def test_form_data_that_is_no_object_is_refused(text: str, problem: str):
    data = sent()
    data["arguments"] = text
    assert form_for(an_approval(), data).errors["arguments"] == [problem]


def test_a_card_shows_the_arguments_of_the_request():
    form = form_for(an_approval())
    assert form["arguments"].value() == '{\n  "city": "Paris"\n}'
    assert isinstance(form_for(a_form()), SchemaForm)


#: What a tool's author may write for any keyword, whatever the standard says of it.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["const", "title", "enum", "type", "a"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
TYPES = st.sampled_from(["string", "integer", "number", "boolean", "array", "object"])
FORMATS = st.sampled_from(["email", "uri", "date", "date-time"])
KEYWORDS = [
    *("title", "description", "default", "enum", "enumNames", "oneOf", "anyOf"),
    *("minLength", "maxLength", "minimum", "maximum", "items"),
]
PROPERTY = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | ANYTHING,
        "format": FORMATS | ANYTHING,
        **dict.fromkeys(KEYWORDS, ANYTHING),
    },
)


@given(
    schema=st.fixed_dictionaries(
        {
            "properties": st.dictionaries(st.text(), PROPERTY | ANYTHING, max_size=3)
            | ANYTHING,
            "required": ANYTHING,
        }
    )
)
def test_any_schema_is_shown_and_can_be_declined(schema: Any):
    shown(Question(kind="form", schema=schema))
    assert form_for(Question(kind="form", schema=schema), sent("decline")).is_valid()


def shown(question: Question) -> str:
    form = form_for(question)
    assert isinstance(form, SchemaForm)
    template = "conversations/_field.html"
    parts = [render_to_string(template, {"field": each}) for each in form.tool_fields]
    return "".join(parts)


@pytest.mark.parametrize(
    "property_schema",
    [
        {"type": "array", "items": True},
        {"type": "array", "items": [{}]},
        {"enum": ["a"], "enumNames": 5},
        {"type": "string", "minLength": "abc"},
        {"title": {}},
    ],
)
def test_a_field_of_an_odd_schema_is_shown(property_schema: Any):
    schema = {"type": "object", "properties": {"odd": property_schema}}
    assert "content-odd" in shown(Question(kind="form", schema=schema))


def test_names_of_another_number_than_the_values_are_ignored():
    values = {"enum": ["a", "b"], "enumNames": ["Only one"]}
    field = fields_of({"properties": {"x": values}})["x"]
    assert list(field.choices)[1:] == [("a", "a"), ("b", "b")]  # type: ignore[attr-defined]


def test_chosen_numbers_of_a_list_come_back_as_numbers():
    sizes = {"type": "array", "items": {"type": "integer", "enum": [1, 2]}}
    schema = {"type": "object", "properties": {"sizes": sizes}}
    data = sent()
    data.setlist("content-sizes", ["1", "2"])
    form = form_for(Question(kind="form", schema=schema), data)
    assert form.is_valid(), form.errors
    assert form.answer == {"content": {"sizes": [1, 2]}}


def test_two_cards_of_one_tool_have_no_id_in_common():
    ids = [set(re.findall(r'id="([^"]+)"', shown(a_form(pk=pk)))) for pk in "ab"]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_words_of_a_tool_are_read_in_their_own_direction():
    page = shown(a_form())
    labels = re.findall(r"<(?:label|legend)[^>]*>", page)
    assert labels
    assert all('dir="auto"' in label for label in labels)
    assert 'dir="auto"' in page[page.index('name="content-name"') :].split(">")[0]
