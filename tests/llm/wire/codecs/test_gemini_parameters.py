from __future__ import annotations

import pytest
from google.genai import types

from llm.wire.codecs.gemini.function_schema import arguments_of
from llm.wire.facades.generate_content_request import in_json_schema

STRING = {"type": "string"}


def taking(value, **more):
    return {"type": "object", "properties": {"value": value}, **more}


SIMPLE = [
    taking(STRING),
    taking(STRING, required=["value"]),
    taking({"type": "string", "enum": ["C", "F"]}),
    taking({"type": "string", "format": "date-time"}),
    taking({"type": "integer", "minimum": 0, "maximum": 9}),
    taking({"type": "array", "items": STRING, "minItems": 1}),
    taking(taking(STRING)),
    taking({"anyOf": [STRING, {"type": "integer"}]}),
]

#: What Google refuses in `parameters` with a 400, or has no word for.
BEYOND = [
    taking({}),
    taking({"type": ["string", "integer"]}),
    taking({"type": "null"}),
    taking({"type": "array"}),
    taking({"type": "object"}),
    taking({"type": "object", "additionalProperties": STRING}),
    taking({"type": "array", "prefixItems": [STRING]}),
    taking({"type": "string", "format": "email"}),
    taking({"type": "string", "enum": ["", "C"]}),
    taking(STRING, required=["another"]),
    taking({"anyOf": [STRING, {"type": "null"}]}),
    taking(STRING, additionalProperties=True),
]


@pytest.mark.parametrize("schema", SIMPLE)
def test_a_simple_schema_uses_the_field_that_every_server_reads(schema):
    encoded = arguments_of(schema)
    assert encoded == {"parameters": schema}
    types.Schema.model_validate(encoded["parameters"])


@pytest.mark.parametrize("schema", BEYOND)
def test_keywords_outside_the_subset_are_sent_as_json_schema(schema):
    assert arguments_of(schema) == {"parametersJsonSchema": schema}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {}},
        {"type": "object", "additionalProperties": True},
        {"type": "object", "properties": {}, "required": [], "description": "None."},
    ],
)
def test_no_arguments_are_no_field(schema):
    assert arguments_of(schema) == {}


def test_that_there_is_nothing_more_goes_without_saying():
    closed = {"additionalProperties": False}
    inner = taking(STRING)
    items = {"type": "array", "items": {**inner, **closed}}
    encoded = arguments_of(taking(items, **closed))
    assert encoded == {"parameters": taking({"type": "array", "items": inner})}


def test_nullable_types_use_googles_keyword_and_are_decoded_back():
    schema = taking({"type": ["string", "null"]})
    encoded = arguments_of(schema)
    assert encoded == {"parameters": taking({"type": "string", "nullable": True})}
    assert in_json_schema(encoded) == {"parametersJsonSchema": schema}


def named(name, kind):
    properties = {"kind": {"const": kind}, name: STRING}
    return {"type": "object", "properties": properties, "required": ["kind", name]}


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [named("path", "file"), named("url", "page")]},
        {"type": "object", "oneOf": [named("path", "file"), named("url", "page")]},
        {
            "oneOf": [{"$ref": "#/$defs/File"}, {"$ref": "#/$defs/Page"}],
            "$defs": {"File": named("path", "file"), "Page": named("url", "page")},
        },
        {"anyOf": [named("path", "file"), {"oneOf": [named("url", "page")]}]},
    ],
)
def test_alternatives_are_one_object_with_the_arguments_of_all(schema):
    declared = arguments_of(schema)["parameters"]
    assert declared["properties"] == {
        "kind": {
            "anyOf": [
                {"type": "string", "enum": ["file"]},
                {"type": "string", "enum": ["page"]},
            ]
        },
        "path": STRING,
        "url": STRING,
    }
    assert declared["required"] == ["kind"]
    assert "kind, path; or kind, url" in declared["description"]
    types.Schema.model_validate(declared)


def test_alternatives_beside_properties_only_say_what_is_required():
    either = [{"required": ["a"]}, {"required": ["b"]}]
    schema = {"properties": {"a": STRING, "b": STRING}, "anyOf": either}
    assert arguments_of(schema) == {
        "parameters": {
            "type": "object",
            "properties": schema["properties"],
            "description": "(one of these sets of arguments: a; or b)",
        }
    }


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": STRING},
        {"allOf": [{"type": "object", "additionalProperties": STRING}]},
        {"type": "object", "patternProperties": {"^x-": STRING}},
        {"anyOf": [{"type": "object", "additionalProperties": STRING}]},
        {
            "type": "object",
            "patternProperties": {"^x-": STRING},
            "additionalProperties": False,
        },
    ],
)
def test_a_map_is_declared_with_the_schema_of_its_values(schema):
    declared = arguments_of(schema)["parametersJsonSchema"]
    assert declared["type"] == "object"
    assert declared["additionalProperties"] == STRING
    assert ("patternProperties" in schema) == ("^x-" in str(declared))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": {}},
        {"type": "object", "patternProperties": {"^a": True}},
    ],
)
def test_a_map_of_anything_is_declared(schema):
    assert arguments_of(schema)["parametersJsonSchema"]["additionalProperties"] == {}


def test_patterns_join_the_schema_of_other_names():
    number = {"type": "integer"}
    schema = {"patternProperties": {"^a": STRING}, "additionalProperties": number}
    declared = arguments_of(schema)["parametersJsonSchema"]
    assert declared["additionalProperties"] == {"anyOf": [STRING, number]}


def test_references_are_written_out():
    schema = taking({"$ref": "#/$defs/Place"}, **{"$defs": {"Place": taking(STRING)}})
    assert arguments_of(schema) == {"parameters": taking(taking(STRING))}


@pytest.mark.parametrize("schema", SIMPLE)
def test_the_argument_is_left_as_it_was(schema):
    before = repr(schema)
    arguments_of(schema)
    assert repr(schema) == before
