from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.adaptation.structured import schema_errors
from llm.wire.json_schema.strict import (
    drop_added_nulls,
    find_keywords,
    to_strict_schema,
)

PLAIN = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 2},
        {"type": ["string", "null"]},
        {"type": "integer", "minimum": 0},
        {"type": "boolean"},
        {"enum": ["a", "b"]},
        {"const": "x"},
        {"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]},
        {"type": "string", "pattern": "^[a-c]+$"},
        {"$ref": "#/$defs/point"},
    ]
)
DEFS = {
    "point": {
        "type": "object",
        "properties": {"x": {"type": "number"}, "label": {"type": "string"}},
        "required": ["x"],
    }
}


@st.composite
def objects(draw, children):
    names = st.sampled_from("abcd")
    properties = draw(st.dictionaries(names, children, min_size=1, max_size=3))
    required = draw(st.sets(st.sampled_from(sorted(properties))))
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(required),
    }


PARTS = st.recursive(
    PLAIN,
    lambda children: st.one_of(
        objects(children),
        st.builds(lambda items: {"type": "array", "items": items}, children),
        st.builds(lambda a, b: {"anyOf": [a, b]}, children, children),
    ),
    max_leaves=6,
)
SCHEMAS = objects(PARTS).map(lambda schema: {**schema, "$defs": DEFS})


def parts(schema: Any):
    if isinstance(schema, dict):
        yield schema
        schema = list(schema.values())
    for each in schema if isinstance(schema, list) else ():
        yield from parts(each)


def sample(schema: dict[str, Any], data: st.DataObject) -> Any:
    """A value that the strict schema allows, as a host's grammar makes one."""
    if "anyOf" in schema:
        return sample(data.draw(st.sampled_from(schema["anyOf"])), data)
    if "enum" in schema:
        return data.draw(st.sampled_from(schema["enum"]))
    types = schema["type"]
    match data.draw(st.sampled_from(types)) if isinstance(types, list) else types:
        case "object":
            return {n: sample(p, data) for n, p in schema["properties"].items()}
        case "array":
            return [sample(schema["items"], data) for _ in range(2)]
        case "string":
            return "abc"
        case "boolean":
            return True
        case "null":
            return None
    return 1


@given(SCHEMAS)
def test_a_strict_schema_is_closed_and_requires_all(schema):
    before = copy.deepcopy(schema)
    found = to_strict_schema(schema)
    assert schema == before
    assert found is not None
    for part in parts(found.schema):
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert part["required"] == list(part["properties"])
    text = str(found.schema)
    for name in ("minLength'", "maxLength'", "oneOf'", "$ref'", "$defs'", "const'"):
        assert name not in text
    # What is strict already is sent as it is.
    again = to_strict_schema(found.schema)
    assert again is not None
    assert again.schema == found.schema
    assert not again.has_added_nulls


@given(SCHEMAS, st.data())
def test_an_answer_fits_the_callers_schema_without_the_added_nulls(schema, data):
    found = to_strict_schema(schema)
    assert found is not None
    value = sample(found.schema, data)
    dropped = drop_added_nulls(schema, value)
    assert schema_errors(schema, dropped) == []
    if not found.has_added_nulls:
        assert dropped == value


INTEGER = {"type": "integer"}
OPTIONAL_A = {"type": "object", "properties": {"a": INTEGER}}
WITH_B = {
    "type": "object",
    "properties": {"b": INTEGER, "c": INTEGER},
    "required": ["b"],
}


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        ({"b": 5, "c": None}, {"b": 5}),
        ({"a": None}, {}),
        ({"a": 1}, {"a": 1}),
        ({"a": None, "else": 1}, {"else": 1}),  # of a host that enforces nothing
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_answer_is_read_by_the_variant_that_has_its_names(answer, meant, wrapped):
    variants = [OPTIONAL_A, WITH_B]
    if wrapped:  # the names differ one level below
        variants = [{"type": "object", "properties": {"in": each}} for each in variants]
        answer, meant = {"in": answer}, {"in": meant}
    schema = {
        "type": "object",
        "properties": {"value": {"anyOf": variants}},
        "required": ["value"],
    }
    found = to_strict_schema(schema)
    assert found is not None
    assert found.has_added_nulls
    assert drop_added_nulls(schema, {"value": answer}) == {"value": meant}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}},
        {"anyOf": [{"type": "object"}, {"type": "object"}]},
        {"type": "object"},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "string"},
        },
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "properties": {}, "required": ["a"]},
        *(
            {
                "type": "object",
                "properties": {"a": {"anyOf": [{"type": "string"}], **beside}},
            }
            for beside in (
                {"properties": {"b": INTEGER}},
                {"type": "object", "additionalProperties": False},
                {"type": "array", "items": INTEGER},
                {"required": ["b"]},
                {"allOf": [{"properties": {"b": INTEGER}}]},
            )
        ),
    ],
)
def test_a_schema_of_arbitrary_values_is_not_strict(schema):
    assert to_strict_schema(schema) is None


@pytest.mark.parametrize(
    ("part", "sent"),
    [
        ({"enum": ["a", None]}, {"enum": ["a", None], "type": ["string", "null"]}),
        ({"enum": [None]}, {"enum": [None], "type": ["null"]}),
        (
            {"type": "string", "anyOf": [{"type": "string", "pattern": "a"}]},
            {"anyOf": [{"type": "string", "pattern": "a"}]},
        ),
    ],
)
def test_a_part_is_sent_with_the_types_of_its_values(part, sent):
    schema = {"type": "object", "properties": {"a": part}, "required": ["a"]}
    found = to_strict_schema(schema)
    assert found is not None
    assert found.schema["properties"]["a"] == sent


def test_lost_constraints_are_found_and_described():
    part = {"type": "string", "minLength": 2, "description": "A name."}
    schema = {
        "type": "object",
        "properties": {"maxLength": part},
        "required": ["maxLength"],
    }
    found = to_strict_schema(schema)
    assert found is not None
    described = found.schema["properties"]["maxLength"]
    assert described == {"type": "string", "description": "A name. (minLength: 2)"}
    assert find_keywords(schema, frozenset({"minLength", "maxLength"})) == {"minLength"}


def choices(levels: int) -> dict:
    nested: dict = {"type": "string"}
    for _ in range(levels):
        nested = {"anyOf": [nested]}
    return {
        "type": "object",
        "properties": {"a": nested, "b": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }


def test_nulls_are_dropped_in_linear_time_where_no_nested_choice_fits():
    assert drop_added_nulls(choices(50), {"a": 5, "b": None}) == {"a": 5}


def test_choices_within_choices_are_levels():
    assert to_strict_schema(choices(8)) is not None
    assert to_strict_schema(choices(30)) is None
