"""Arguments that the model left out."""

from __future__ import annotations

import pytest

from tools.json_schema.defaults import UnclearDefaults, fill_defaults

ORDER = {
    "type": "object",
    "properties": {
        "euros": {"type": "integer", "default": 500},
        "to": {"$ref": "#/$defs/Person"},
        "copies": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
    },
    "$defs": {"Person": {"properties": {"role": {"default": "owner"}, "name": {}}}},
}


@pytest.mark.parametrize(
    ("arguments", "filled"),
    [
        ({}, {"euros": 500}),
        ({"euros": None}, {"euros": None}),
        (
            {"to": {"name": "Ada"}, "copies": [{}, {"role": "guest"}]},
            {
                "euros": 500,
                "to": {"role": "owner", "name": "Ada"},
                "copies": [{"role": "owner"}, {"role": "guest"}],
            },
        ),
    ],
)
def test_defaults_are_filled_at_each_level(arguments, filled):
    assert fill_defaults(ORDER, arguments) == filled


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": ["a"]},
        {"properties": {"a": True}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
)
def test_an_unusual_schema_changes_nothing(schema):
    assert fill_defaults(schema, {"a": {"b": [1]}}) == {"a": {"b": [1]}}


EUROS = {"type": "integer", "default": 500}
NESTED = {"properties": {"euros": EUROS}}


@pytest.mark.parametrize(
    ("schema", "arguments", "filled"),
    [
        (
            {
                "properties": {"euros": {"$ref": "#/$defs/E", "title": "Euros"}},
                "$defs": {"E": EUROS},
            },
            {},
            {"euros": 500},
        ),
        (
            {
                "properties": {"euros": {"$ref": "#/$defs/E", "default": 7}},
                "$defs": {"E": EUROS},
            },
            {},
            {"euros": 7},
        ),
        ({"allOf": [NESTED]}, {}, {"euros": 500}),
        (
            {"$ref": "#/$defs/N", "properties": {"a": {}}, "$defs": {"N": NESTED}},
            {"a": 1},
            {"a": 1, "euros": 500},
        ),
        (
            {"properties": {"order": {**NESTED, "default": {}}}},
            {},
            {"order": {"euros": 500}},
        ),
        (
            {
                "properties": {"order": NESTED},
                "allOf": [{"properties": {"order": {"properties": {"n": EUROS}}}}],
            },
            {"order": {}},
            {"order": {"euros": 500, "n": 500}},
        ),
        ({"anyOf": [NESTED, {"type": "null"}]}, {"euros": 1}, {"euros": 1}),
        (
            {"properties": {"a": {"anyOf": [NESTED, {}], "default": None}}},
            {},
            {"a": None},
        ),
    ],
)
def test_defaults_count_wherever_the_schema_has_them(schema, arguments, filled):
    assert fill_defaults(schema, arguments) == filled


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [NESTED, {}]},
        {"oneOf": [{}, {"allOf": [NESTED]}]},
        {"if": {"required": ["a"]}, "then": NESTED},
        {"dependentSchemas": {"a": NESTED}},
        {"properties": {"a": {"anyOf": [NESTED, {"type": "null"}]}}},
        {"properties": {"n": {"$ref": "#", "default": {}}}},
        {"anyOf": [{"$ref": "#"}]},
    ],
)
def test_defaults_that_depend_on_a_branch_or_have_no_end_are_unclear(schema):
    with pytest.raises(UnclearDefaults):
        fill_defaults(schema, {"a": {}})
