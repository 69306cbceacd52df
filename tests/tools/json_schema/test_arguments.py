from __future__ import annotations

import pytest

from tools.errors import InvalidArguments
from tools.json_schema.arguments import check, why_invalid

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Riga", "Oslo"]},
        "pages": {"type": "array", "items": {"type": "integer", "maximum": 3}},
        "point": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string", "minLength": 3}, POINT]},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"Point": POINT},
}


@pytest.mark.parametrize(
    ("arguments", "mistakes"),
    [
        ({}, '"city" is a required property'),
        ({"city": "Rome"}, 'at city: the value is not one of "Riga" or "Oslo"'),
        (
            {"city": "Riga", "pages": [1, "2", 7]},
            'at pages[1]: the value is not of type "integer"; at pages[2]: the value is'
            " greater than the maximum of 3",
        ),
        (
            {"city": "Riga", "town": ""},
            "Additional properties are not allowed ('town' was unexpected)",
        ),
        (
            {"city": "Riga", "point": {"x": "1"}},
            'at point.x: the value is not of type "integer"',
        ),
        ({"city": "Riga", "either": {}}, 'at either: "x" is a required property'),
        (
            {"city": "Riga", "either": "a"},
            "at either: the value is shorter than 3 characters",
        ),
        (
            {"city": "Riga", "either": 1},
            "at either: the value is not valid under any of the schemas listed in the"
            " 'anyOf' keyword",
        ),
        (
            {"city": "Riga", "pages": ["a"] * 7},
            "; ".join(
                [f'at pages[{n}]: the value is not of type "integer"' for n in range(5)]
                + ["and 2 more"]
            ),
        ),
    ],
)
def test_a_mistake_is_reported_with_its_path(arguments, mistakes):
    with pytest.raises(InvalidArguments) as caught:
        check(SCHEMA, arguments)
    assert str(caught.value) == f"the arguments do not fit: {mistakes}."


def test_valid_arguments_have_no_mistakes():
    check(SCHEMA, {"city": "Riga", "pages": [1, 2.0], "point": None})


def test_no_value_is_repeated():
    with pytest.raises(InvalidArguments) as caught:
        check(SCHEMA, {"city": "s3cret", "pages": ["s3cret"], "either": "s3"})
    assert "s3" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/hostname"},
        {"$schema": "http://127.0.0.1:9/meta"},
        {"type": "objekt"},
    ],
)
def test_a_schema_that_is_wrong_or_elsewhere_is_refused(schema):
    with pytest.raises(InvalidArguments, match=r"fetched|meta-schema|not valid"):
        check(schema, {})


def chained(references: int) -> dict:
    defs = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(references)}
    return {"$defs": {**defs, f"a{references}": {}}, "$ref": "#/$defs/a0"}


def deep(levels: int) -> dict:
    schema: dict = {}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"a": {"required": True}}}, "at properties.a.required: "),
        ({"properties": {"a": {"exclusiveMinimum": True}}}, "exclusiveMinimum: "),
        ({"type": "any"}, "at type: "),
        ({"pattern": "("}, "at pattern: "),
        ({"$ref": "https://example.com/a"}, "never fetched"),
        ({"$schema": "https://example.com/a"}, "meta-schema"),
        (deep(300), "recursion"),
        (chained(2_000), "recursion"),
    ],
)
def test_a_tool_with_an_invalid_schema_cannot_be_called(schema: dict, reason: str):
    with pytest.raises(InvalidArguments, match="cannot be called until") as caught:
        check(schema, {"a": 1})
    assert reason.lower() in str(caught.value).lower()
    assert reason.lower() in why_invalid(schema).lower()


def test_a_valid_schema_has_no_reason():
    assert why_invalid(SCHEMA) == ""
