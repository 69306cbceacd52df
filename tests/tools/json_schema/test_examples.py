from __future__ import annotations

import pytest

from tools.json_schema.arguments import check
from tools.json_schema.examples import example_of
from tools.registry import python_tools


def one(schema: dict) -> object:
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    example = example_of(parameters)
    check(parameters, example)
    return example["a"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "minLength": 6}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "format": "email"}, "ada@example.com"),
        ({"type": "string", "enum": ["sea", "garden"]}, "sea"),
        ({"type": "string", "examples": ["FR", "DE"]}, "FR"),
        ({"type": "string", "default": "UTC"}, "UTC"),
        ({"const": 7}, 7),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "integer", "maximum": -3}, -3),
        ({"type": "integer", "minimum": 5, "multipleOf": 4}, 8),
        ({"type": "number", "exclusiveMaximum": 1}, 0.5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["null", "integer"]}, 1),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "maxItems": 0, "minItems": 0}, []),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, True),
        ({"oneOf": [{"type": "integer"}]}, 1),
        ({"allOf": [{"type": "string"}, {"minLength": 5}]}, "textx"),
        ({"properties": {"b": {"type": "boolean"}}, "required": ["b"]}, {"b": True}),
        ({}, "text"),
        ({"type": "array", "items": {"type": "null"}, "minItems": 2.0}, [None, None]),
        ({"type": "string", "minLength": 6.0, "maxLength": 7.0}, "textxx"),
    ],
)
def test_an_example_fits(schema: dict, expected: object):
    assert one(schema) == expected


def test_optional_arguments_are_left_out_unless_the_schema_gives_one():
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"default": 3}, "c": {}},
        "required": ["c"],
    }
    assert example_of(parameters) == {"b": 3, "c": "text"}


def test_references_are_followed_and_an_end_is_found():
    node = {
        "type": "object",
        "properties": {"child": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}},
        "required": ["child", "n"],
    }
    parameters = {**node, "$defs": {"node": node}}
    assert example_of(parameters)["child"]["n"] == 1


@pytest.mark.parametrize("tool", python_tools().values(), ids=python_tools().keys())
def test_each_of_our_own_tools_takes_its_example(tool):
    check(tool.parameters, example_of(tool.parameters))


LIST = {"type": "array", "minItems": 50, "items": {"$ref": "#/$defs/L"}}
OBJECT = {
    "type": "object",
    "properties": {f"p{n}": {"$ref": "#/$defs/L"} for n in range(50)},
    "required": [f"p{n}" for n in range(50)],
}


@pytest.mark.parametrize("target", [LIST, OBJECT, {"allOf": [{"$ref": "#/$defs/L"}]}])
def test_an_example_of_a_schema_that_names_itself_is_short(target: dict):
    parameters = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"allOf": [{"$ref": "#/$defs/L"}] * 50}},
        "$defs": {"L": target},
    }
    assert len(str(example_of(parameters))) < 10_000


@pytest.mark.parametrize(
    "schema",
    [
        {"minLength": None},
        {"type": "array", "minItems": "1"},
        {"properties": ["b"]},
        {"enum": None},
    ],
)
def test_an_invalid_schema_has_no_example(schema: dict):
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    assert example_of(parameters) == {}


def test_limits_that_no_number_fits_are_ignored():
    parameters = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 1e308, "multipleOf": 1e-10},
        },
        "required": ["a"],
    }
    assert example_of(parameters) == {"a": 1}
