"""Arguments that the model left out."""

from __future__ import annotations

import pytest

from tools.json_schema.defaults import fill_defaults

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
