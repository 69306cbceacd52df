from __future__ import annotations

from urllib.parse import quote

import pytest

from tools.json_schema.schema_mistakes import EMPTY, schema_mistakes
from tools.registry import python_tools


@pytest.mark.parametrize(
    ("schema", "path", "message"),
    [
        ([], (), "a schema must be an object"),
        ({"type": "string"}, ("type",), '"type": "object"'),
        ({}, ("type",), '"type": "object"'),
        ({"properties": {"a": {"type": "txt"}}}, "properties a type", '"txt" is not'),
        ({"properties": {"a": {"minimum": "x"}}}, "properties a minimum", '"number"'),
        ({"properties": {"a": {"pattern": "("}}}, "properties a pattern", "regex"),
        ({"properties": []}, "properties", "is not of type"),
        ({"required": "a"}, "required", "is not of type"),
        ({"$ref": "#/$defs/x"}, "$ref", "this schema has nothing at '#/$defs/x'"),
        ({"properties": {"a": {"$ref": "b.json"}}}, "properties a $ref", '"$defs"'),
        ({"$ref": "https://x.test/y"}, "$ref", "document, which is never fetched"),
        ({"$ref": f"#/{'x' * 500}"}, "$ref", f"'#/{'x' * 98}…'"),
        (
            {"allOf": [{}], "$ref": f"#/allOf/{'1' * 5000}"},
            "$ref",
            "this schema has nothing at '#/allOf/111",
        ),
        ({"allOf": [{}], "$ref": "#/allOf/1"}, "$ref", "nothing at '#/allOf/1'"),
        ({"$ref": "#nowhere"}, (), "Anchor 'nowhere' does not exist"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "$schema", "leave it"),
    ],
)
def test_a_mistake_is_reported_with_its_path(schema, path, message):
    if isinstance(schema, dict) and schema.get("type") != "string" and schema:
        schema = {"type": "object", **schema}
    (location, text), *others = schema_mistakes(schema)
    assert tuple(location) == (tuple(path.split()) if isinstance(path, str) else path)
    assert message in text
    assert others == []


def test_every_mistake_is_reported_once():
    wrong = {name: {"type": "txt", "minimum": "x"} for name in "ab"}
    found = list(schema_mistakes({"type": "object", "properties": wrong}))
    assert len(found) == 4


def test_all_our_own_tools_are_right():
    assert not list(schema_mistakes(EMPTY))
    for tool in python_tools().values():
        assert not list(schema_mistakes(tool.parameters)), tool.name


def test_a_schema_may_refer_to_itself():
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    assert not list(schema_mistakes(tree))


@pytest.mark.parametrize("name", ["a/b", "a~b", "é", "a b", "0"])
def test_references_that_lead_somewhere_are_no_mistake(name: str):
    steps = quote(name.replace("~", "~0").replace("/", "~1"), safe="~")
    ref = {"properties": {"x": {"$ref": f"#/$defs/{steps}"}, "y": {"$ref": "gone"}}}
    schema = {"type": "object", "$defs": {name: {"type": "string"}}, **ref}
    [(path, _text)] = schema_mistakes(schema)
    assert path == ("properties", "y", "$ref")


def test_a_reference_may_lead_into_a_list():
    schema = {"type": "object", "allOf": [{}, {}], "$ref": "#/allOf/1"}
    assert not list(schema_mistakes(schema))
