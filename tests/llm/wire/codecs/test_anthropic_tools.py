from __future__ import annotations

import pytest

from llm.errors import BadRequest
from llm.wire.codecs.anthropic.schema import (
    MAX_OPTIONAL,
    MAX_STRICT,
    MAX_UNIONS,
    Allowance,
    object_schema,
    to_grammar_schema,
)
from llm.wire.codecs.anthropic.tools import Tools, convert_choice

STRING, NULL = {"type": "string"}, {"type": "null"}
NONE: dict = {"properties": {}}
OBJECT = {"type": "object", "properties": {"at": STRING}, "required": ["at"]}
LOOK = {"type": "function", "name": "look", "description": "L.", "parameters": OBJECT}
WIKI = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": "https://wiki.test/mcp",
    "require_approval": "never",
}
CLOSED = {**OBJECT, "additionalProperties": False}


def only(tool: dict) -> dict:
    [encoded] = Tools.of([tool]).tools
    return encoded


class TestTools:
    @pytest.mark.parametrize(
        ("tool", "expected"),
        [
            (LOOK, {"name": "look", "description": "L.", "input_schema": OBJECT}),
            (
                {"type": "function", "name": "a.b", "parameters": None},
                {"name": "a_b_2e7336dc", "input_schema": {"type": "object", **NONE}},
            ),
            (
                {**LOOK, "strict": True},
                {
                    "name": "look",
                    "description": "L.",
                    "input_schema": CLOSED,
                    "strict": True,
                },
            ),
            (
                {
                    "type": "web_search",
                    "filters": {"allowed_domains": ["a.test"]},
                    "user_location": {"type": "approximate", "city": "Bonn"},
                },
                {
                    "type": "web_search_20250305",
                    "name": "web_search",
                    "allowed_domains": ["a.test"],
                    "user_location": {"type": "approximate", "city": "Bonn"},
                },
            ),
            (
                {"type": "web_search_preview_2025_03_11"},
                {"type": "web_search_20250305", "name": "web_search"},
            ),
            (
                {"type": "code_interpreter", "container": {"type": "auto"}},
                {"type": "code_execution_20250825", "name": "code_execution"},
            ),
            (
                {"type": "web_fetch_20260318", "name": "web_fetch"},
                {"type": "web_fetch_20260318", "name": "web_fetch"},
            ),
        ],
    )
    def test_each_has_its_form(self, tool, expected):
        assert only(tool) == expected

    def test_free_text_becomes_one_argument(self):
        tools = Tools.of([{"type": "custom", "name": "shell"}])
        assert tools.tools[0]["input_schema"]["required"] == ["input"]
        assert tools.degraded == ["tools"]

    def test_an_mcp_server_is_named_twice(self):
        tools = Tools.of([{**WIKI, "authorization": "t", "allowed_tools": ["read"]}])
        assert tools.servers == [
            {
                "type": "url",
                "url": "https://wiki.test/mcp",
                "name": "wiki",
                "authorization_token": "t",
            }
        ]
        assert tools.tools == [
            {
                "type": "mcp_toolset",
                "mcp_server_name": "wiki",
                "default_config": {"enabled": False},
                "configs": {"read": {"enabled": True}},
            }
        ]

    @pytest.mark.parametrize(
        "tool",
        [
            {"type": "file_search"},
            {**WIKI, "require_approval": "always"},
            {**WIKI, "headers": {"X-Key": "1"}},
            {**WIKI, "server_url": None},
        ],
    )
    def test_unsupported_tools_are_refused(self, tool):
        with pytest.raises(BadRequest):
            Tools.of([tool])

    def test_a_schema_that_cannot_be_strict_is_not(self):
        free = {"type": "object", "properties": {"any": {"type": "object"}}}
        tools = Tools.of([{**LOOK, "parameters": free, "strict": True}])
        assert tools.tools[0]["input_schema"] == free
        assert "strict" not in tools.tools[0]
        assert tools.degraded == ["tools"]

    def test_no_more_are_strict_than_there_may_be(self):
        tools = Tools.of([{**LOOK, "strict": True}] * (MAX_STRICT + 1))
        assert [t.get("strict") for t in tools.tools] == [True] * MAX_STRICT + [None]


class TestChoice:
    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            (None, None),
            ("auto", {"type": "auto"}),
            ("none", {"type": "none"}),
            ("required", {"type": "any"}),
            ({"type": "function", "name": "look"}, {"type": "tool", "name": "look"}),
            ({"type": "web_search_preview"}, {"type": "tool", "name": "web_search"}),
            ({"type": "code_interpreter"}, {"type": "tool", "name": "code_execution"}),
        ],
    )
    def test_each_has_its_form(self, choice, expected):
        assert convert_choice(choice, [LOOK]) == (expected, [LOOK])

    def test_among_some_only_those_are_shown(self):
        tools = [LOOK, {**LOOK, "name": "hear"}, {"type": "web_search"}]
        allowed = [{"type": "function", "name": "hear"}, {"type": "web_search"}]
        choice = {"type": "allowed_tools", "mode": "required", "tools": allowed}
        assert convert_choice(choice, tools) == ({"type": "any"}, tools[1:])

    def test_any_other_is_refused(self):
        with pytest.raises(BadRequest):
            convert_choice({"type": "image_generation"}, [])


class TestObjectSchema:
    @pytest.mark.parametrize("schema", [OBJECT, {**OBJECT, "$defs": {"A": STRING}}])
    def test_an_object_stays_as_it_is(self, schema):
        assert object_schema(schema) == schema

    def test_a_root_that_points_elsewhere_is_looked_up(self):
        schema = {"$ref": "#/$defs/Look", "$defs": {"Look": OBJECT}}
        assert object_schema(schema) == {**OBJECT, "$defs": {"Look": OBJECT}}

    def test_one_that_points_at_itself_is_any_object(self):
        encoded = object_schema({"$ref": "#"})
        assert encoded == {"type": "object", "properties": {}}

    @pytest.mark.parametrize(
        ("union", "required"), [("anyOf", ["at"]), ("allOf", ["at", "by"])]
    )
    def test_alternatives_are_merged_into_one_object_and_described(
        self, union, required
    ):
        other = {
            "type": "object",
            "properties": {"at": STRING, "by": STRING},
            "required": ["by", "at"],
        }
        schema = {union: [{"$ref": "#/$defs/A"}, other], "$defs": {"A": OBJECT}}
        encoded = object_schema(schema)
        assert union not in encoded
        assert encoded["type"] == "object"
        assert list(encoded["properties"]) == ["at", "by"]
        assert encoded["required"] == required
        assert union in encoded["description"]


class TestClosed:
    @pytest.mark.parametrize(
        ("schema", "expected"),
        [
            (OBJECT, CLOSED),
            (
                {"type": "object", "properties": {}, "additionalProperties": False},
                {"type": "object", "properties": {}, "additionalProperties": False},
            ),
            (
                {**OBJECT, "properties": {"at": {**STRING, "format": "uri"}}},
                {**CLOSED, "properties": {"at": {**STRING, "format": "uri"}}},
            ),
            (
                {**OBJECT, "properties": {"at": {**STRING, "format": "iban"}}},
                {
                    **CLOSED,
                    "properties": {
                        "at": {**STRING, "description": '({"format":"iban"})'}
                    },
                },
            ),
            (
                {"type": "array", "items": OBJECT, "minItems": 1},
                {"type": "array", "items": CLOSED, "minItems": 1},
            ),
            (
                {"anyOf": [OBJECT, {"type": "null"}]},
                {"anyOf": [CLOSED, {"type": "null"}]},
            ),
        ],
    )
    def test_objects_admit_nothing_else(self, schema, expected):
        assert to_grammar_schema(schema) == expected

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object"},
            {"type": "object", "additionalProperties": STRING},
            {},
            {"type": "array", "items": {"type": "object"}},
            {
                "$ref": "#/$defs/Tree",
                "$defs": {
                    "Tree": {
                        "type": "object",
                        "properties": {"left": {"$ref": "#/$defs/Tree"}},
                    }
                },
            },
        ],
    )
    def test_a_schema_that_admits_nothing_cannot_be_closed(self, schema):
        assert to_grammar_schema(schema) is None


class TestAllowance:
    def test_counts_what_is_optional_and_what_has_alternatives(self):
        many = {str(n): STRING for n in range(MAX_OPTIONAL)}
        allowance = Allowance()
        assert allowance.try_add({"type": "object", "properties": many})
        assert not allowance.try_add({"type": "object", "properties": {"one": STRING}})
        assert allowance.try_add(CLOSED)

    def test_alternatives_count_wherever_they_are(self):
        either = {"type": ["string", "null"]}
        unions = {"anyOf": [either] * (MAX_UNIONS - 1)}
        assert Allowance().try_add({"type": "array", "items": unions})
        assert not Allowance().try_add({"anyOf": [unions, either]})
