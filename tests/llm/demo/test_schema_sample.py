from __future__ import annotations

import contextlib

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.demo.schema_sample import Endless, sample

STRICT = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "population": {"type": "integer", "minimum": 1},
        "mood": {"enum": ["calm", "wild"]},
        "kind": {"const": "card"},
        "landmarks": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "twinned_with": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "founded": {"type": ["string", "null"], "format": "date"},
        "place": {"$ref": "#/$defs/place"},
    },
    "required": [
        "city",
        "population",
        "mood",
        "kind",
        "landmarks",
        "twinned_with",
        "founded",
        "place",
    ],
    "additionalProperties": False,
    "$defs": {
        "place": {
            "type": "object",
            "properties": {"lat": {"type": "number", "exclusiveMinimum": 0}},
            "required": ["lat"],
        }
    },
}
TREE = {
    "type": "object",
    "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["children"],
}


@pytest.mark.parametrize(
    "schema",
    [
        STRICT,
        TREE,
        True,
        {},
        {"type": "array"},
        {"type": "array", "maxItems": 0},
        {"prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": False},
        {"allOf": [{"$ref": "#/$defs/a"}, {"required": ["b"]}]}
        | {"$defs": {"a": {"properties": {"b": {"type": "null"}}, "required": ["b"]}}},
        {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        {
            "type": "object",
            "required": ["x"],
            "additionalProperties": {"type": "number"},
        },
        {"type": "string", "minLength": 12},
        {"type": "string", "maxLength": 2},
        {"type": "string", "pattern": "^[0-9]{5}$"},
        {"type": "string", "pattern": "^[A-Z]+$"},
        {"type": "integer", "multipleOf": 3, "minimum": 5},
        {"type": "integer", "exclusiveMaximum": -3},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.25},
        {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "boolean"}}},
        *(
            {"type": "string", "format": format}
            for format in ("date-time", "date", "time", "email", "ipv4", "ipv6", "uuid")
        ),
    ],
)
def test_a_sample_is_an_instance(schema):
    validator = jsonschema.Draft202012Validator
    jsonschema.validate(
        sample(schema), schema, validator, format_checker=validator.FORMAT_CHECKER
    )


def test_optional_properties_are_omitted():
    assert sample({"properties": {"a": {}, "b": {}}, "required": ["b"]}) == {
        "b": "demo"
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {**TREE, "properties": {"children": {"$ref": "#"}}},
        {"anyOf": [{"$ref": "#"}]},
        {"type": "array", "minItems": 1, "items": {"$ref": "#"}},
        {"type": "array", "minItems": 500}
        | {"items": {"type": "array", "minItems": 500, "items": {}}},
    ],
)
def test_a_schema_without_a_small_instance_is_endless(schema):
    with pytest.raises(Endless):
        sample(schema)


KEYWORDS = [
    "type",
    "enum",
    "$ref",
    "anyOf",
    "allOf",
    "properties",
    "required",
    "items",
    "minItems",
    "minimum",
    "multipleOf",
    "pattern",
    "format",
]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
        ),
    )
)
def test_nonsense_is_answered_or_refused_but_never_breaks(schema):
    with contextlib.suppress(Endless):
        sample(schema)
