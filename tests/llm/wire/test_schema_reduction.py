from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import BadRequest
from llm.wire.codecs.gemini.codec import SCHEMA_KEYWORDS
from llm.wire.json_schema.reduction import cut_down, without_refs


def cut(schema: Any) -> Any:
    return cut_down(schema, SCHEMA_KEYWORDS)


NODE = {
    "type": "object",
    "properties": {"next": {"$ref": "#/$defs/Node"}, "value": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {}),
        (True, {}),
        (False, {"description": "(nothing is valid here)"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"const": "a"}, {"enum": ["a"], "type": "string"}),
        ({"enum": ["a", None]}, {"enum": ["a", None]}),
        ({"enum": [1, "a"]}, {"description": '(one of: [1, "a"])'}),
        (
            {"oneOf": [{"type": "string"}, {"const": 1}]},
            {"anyOf": [{"type": "string"}, {"description": "(one of: [1])"}]},
        ),
        (
            {
                "type": "string",
                "description": "A word.",
                "pattern": "^a",
                "minLength": 2,
            },
            {"type": "string", "description": "A word. (pattern: ^a; minLength: 2)"},
        ),
        (
            {"$schema": "x", "$id": "y", "$defs": {"A": {}}, "type": "object"},
            {"type": "object"},
        ),
        (
            {"type": "array", "items": [{"const": "a"}, {}]},
            {"type": "array", "prefixItems": [{"enum": ["a"], "type": "string"}, {}]},
        ),
        (
            {"additionalProperties": {"const": "a"}},
            {"additionalProperties": {"enum": ["a"], "type": "string"}},
        ),
        ({"additionalProperties": False}, {"additionalProperties": False}),
    ],
)
def test_keywords(schema, expected):
    assert cut(schema) == expected


def test_a_property_may_be_called_like_a_keyword():
    schema = {"properties": {"pattern": {"pattern": "a"}, "$ref": {"type": "string"}}}
    assert cut(schema) == {
        "properties": {
            "pattern": {"description": "(pattern: a)"},
            "$ref": {"type": "string"},
        }
    }


def test_references_are_written_out():
    schema = {
        "$defs": {"a/b": {"type": "string"}, "List": [{"type": "integer"}]},
        "properties": {
            "x": {"$ref": "#/$defs/a~1b", "description": "Mine."},
            "y": {"$ref": "#/$defs/List/0"},
            "far": {"$ref": f"#/$defs/List/{'1' * 5000}"},
            "z": {"$ref": "https://elsewhere.example/schema"},
            "none": {"$ref": "#/$defs/None"},
        },
    }
    assert cut(schema)["properties"] == {
        "x": {"type": "string", "description": "Mine."},
        "y": {"type": "integer"},
        "far": {},
        "z": {},
        "none": {},
    }


def test_a_recursive_schema_is_open_at_the_second_level():
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}
    assert cut(schema) == {
        "type": "object",
        "properties": {"next": {"type": "object"}, "value": {"type": "string"}},
    }
    either = {"anyOf": [{"type": "string"}, {"items": {"$ref": "#"}}]}
    assert cut(either) == {
        "anyOf": [
            {"type": "string"},
            {"items": {"anyOf": [{"type": "string"}, {"items": {}}]}},
        ]
    }


def test_all_of_is_put_together():
    base = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    schema = {
        "$defs": {"Base": {"type": "object", "allOf": [base]}},
        "allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"b": {}}}],
        "properties": {"c": {}},
        "required": ["c"],
    }
    whole = cut(schema)
    assert whole["type"] == "object"
    assert whole["properties"].keys() == {"a", "b", "c"}
    assert set(whole["required"]) == {"a", "c"}


def test_a_type_that_is_used_beside_itself_is_no_recursion():
    base = {"type": "object", "properties": {"id": {"type": "string"}}}
    schema = {
        "$defs": {"Base": base},
        "allOf": [{"$ref": "#/$defs/Base"}],
        "properties": {"owner": {"$ref": "#/$defs/Base"}},
    }
    whole = {**base, "properties": {**base["properties"], "owner": base}}
    assert cut(schema) == whole
    del schema["allOf"]
    assert cut({**schema, "$ref": "#/$defs/Base"}) == whole


def test_a_merged_schema_that_refers_to_itself_has_an_end():
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}},
        "additionalProperties": {"$ref": "#/$defs/Node"},
    }
    other = {"properties": {"also": {"$ref": "#/$defs/Other"}}}
    schema = {
        "$defs": {"Node": node, "Other": {"allOf": [other, {"$ref": "#/$defs/Node"}]}},
        "$ref": "#/$defs/Other",
    }
    inner = {
        "type": "object",
        "properties": {"next": {"type": "object"}},
        "additionalProperties": {"type": "object"},
    }
    assert cut(schema) == {
        "type": "object",
        "properties": {"next": {"type": "object"}, "also": {}},
        "additionalProperties": {"type": "object"},
    }
    assert cut({**schema, "$ref": "#/$defs/Node"}) == inner


def test_a_schema_that_writes_out_to_millions_is_refused():
    bomb = {
        f"L{n}": {
            "properties": {
                key: {"$ref": f"#/$defs/L{n + 1}"} for key in ("a", "b", "c", "d")
            }
        }
        for n in range(12)
    }
    with pytest.raises(BadRequest, match="too large"):
        cut({"$ref": "#/$defs/L0", "$defs": {**bomb, "L12": {"type": "string"}}})


def test_a_schema_that_never_ends_is_refused():
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        deep = {"items": deep}
    with pytest.raises(BadRequest, match="too large"):
        cut(deep)
    deeper: dict[str, Any] = {}
    for _ in range(500):
        deeper = {"allOf": [deeper]}
    with pytest.raises(BadRequest, match="too large"):
        cut(deeper)


def test_the_schema_itself_stays_as_it_was():
    schema = {"$defs": {"Node": NODE}, "allOf": [{"$ref": "#/$defs/Node"}]}
    before = json.dumps(schema)
    cut(schema)
    assert json.dumps(schema) == before


words = st.sampled_from(["a", "b", "ab"])
values = st.one_of(words, st.integers(-2, 2), st.booleans(), st.none())
instances = st.recursive(
    values,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2)
    ),
    max_leaves=5,
)
leaves = st.one_of(
    st.just({}),
    st.sampled_from(["string", "integer", "object", "array", "null"]).map(
        lambda kind: {"type": kind}
    ),
    values.map(lambda value: {"const": value}),
    st.lists(values, min_size=1, max_size=2).map(lambda some: {"enum": some}),
    st.just({"type": "string", "minLength": 2}),
    st.just({"$ref": "#/$defs/Node"}),
)
schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(words, inner, max_size=2).map(lambda p: {"properties": p}),
        inner.map(lambda one: {"items": one}),
        inner.map(lambda one: {"additionalProperties": one}),
        st.lists(inner, min_size=1, max_size=2).map(lambda some: {"anyOf": some}),
        inner.map(lambda one: {"allOf": [one], "required": ["a"]}),
        inner.map(lambda one: {"not": one}),
    ),
    max_leaves=4,
)


@given(schemas, instances)
def test_valid_values_stay_valid(schema: dict[str, Any], instance: Any):
    whole = {**schema, "$defs": {"Node": NODE}}
    if jsonschema.Draft202012Validator(whole).is_valid(instance):
        assert jsonschema.Draft202012Validator(cut(whole)).is_valid(instance)


# References written out, and nothing else


TREE = {
    "type": "object",
    "properties": {
        "child": {"$ref": "#/$defs/Node"},
        "$ref": {"type": "string", "minLength": 2},
    },
    "required": ["child"],
    "$defs": {
        "Node": {
            "type": "object",
            "description": "A node.",
            "properties": {
                "name": {"$ref": "#/$defs/Name"},
                "next": {"$ref": "#/$defs/Node", "description": "The next."},
            },
        },
        "Name": {"type": "string", "pattern": "^a", "enum": ["a", "ab"]},
    },
}


def test_references_alone_are_written_out():
    assert without_refs(TREE) == {
        "type": "object",
        "properties": {
            "child": {
                "type": "object",
                "description": "A node.",
                "properties": {
                    "name": {"type": "string", "pattern": "^a", "enum": ["a", "ab"]},
                    "next": {"type": "object", "description": "The next."},
                },
            },
            "$ref": {"type": "string", "minLength": 2},
        },
        "required": ["child"],
    }


def test_a_reference_to_a_reference_is_followed():
    schema = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {}}}
    assert without_refs({**schema, "title": "T"}) == {"title": "T"}


def test_a_schema_without_references_is_the_same_object():
    schema = {"type": "object", "oneOf": [{"const": 1}], "not": {"type": "null"}}
    assert without_refs(schema) is schema


def test_values_are_no_schemas():
    schema = {"default": {"$ref": "#"}, "properties": {"a": {"$ref": "#/$defs/A"}}}
    assert without_refs({**schema, "$defs": {"A": {"const": {"$defs": 1}}}}) == {
        "default": {"$ref": "#"},
        "properties": {"a": {"const": {"$defs": 1}}},
    }


def test_writing_out_to_millions_is_refused_here_too():
    defs = {f"L{n}": {"items": [{"$ref": f"#/$defs/L{n + 1}"}] * 8} for n in range(9)}
    with pytest.raises(BadRequest, match="too large"):
        without_refs({"$ref": "#/$defs/L0", "$defs": defs})


@pytest.mark.parametrize("reduce", [cut, without_refs])
def test_a_schema_that_changed_is_reduced_anew(reduce):
    schema = {"properties": {"next": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}}
    reduce(schema)
    schema["$defs"]["A"] = {"type": "string"}
    assert reduce(schema) == {"properties": {"next": {"type": "string"}}}


@pytest.mark.parametrize("odd", [1 << 70, "\ud800", ["x" * 20_000]])
def test_a_schema_that_is_not_cached_is_reduced_alike(odd):
    schema = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}}
    schema["properties"]["b"] = {"enum": [odd], "type": "string"}
    assert cut(schema)["properties"]["a"] == {}
    assert without_refs(schema)["properties"]["a"] == {}
