from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.input.checks import InputError, InputSizeError, is_deeper
from conversations.input.items import items_of, options_of
from conversations.requests.schemas import OPTIONS
from llm.wire.items import text_of

PIXEL = "data:image/png;base64,iVBORw0KGgo="
PAGE = "data:application/pdf;base64,JVBERi0="
SIZE = 1000  # bytes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_a_string_is_a_user_message():
    [item] = items_of("Hi", max_size=SIZE)
    assert item["id"].startswith("msg_")
    assert item["status"] == "completed"
    assert (item["role"], text_of(item)) == ("user", "Hi")


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        ("user", "input_text"),
        ("system", "input_text"),
        ("developer", "input_text"),
        ("assistant", "output_text"),
    ],
)
@pytest.mark.parametrize("content", ["Hi", [{"type": "text", "text": "Hi"}]])
def test_the_role_decides_the_kind_of_text(role: str, kind: str, content: Any):
    [item] = items_of([{"role": role, "content": content}], max_size=SIZE)
    assert item["content"][0]["type"] == kind
    assert text_of(item) == "Hi"


@pytest.mark.parametrize(
    ("given_part", "stored"),
    [
        (
            {"type": "input_image", "image_url": PIXEL},
            {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
        ),
        (
            {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
            {"type": "input_image", "image_url": PIXEL, "detail": "low"},
        ),
        (
            {"type": "input_image", "image_url": "HTTPS://a.example/b.png"},
            {
                "type": "input_image",
                "image_url": "HTTPS://a.example/b.png",
                "detail": "auto",
            },
        ),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": PAGE},
            {"type": "input_file", "filename": "a.pdf", "file_data": PAGE},
        ),
        (
            {"type": "input_file", "file_url": "https://a.example/b.pdf"},
            {"type": "input_file", "file_url": "https://a.example/b.pdf"},
        ),
    ],
)
def test_images_and_files_are_stored_in_one_form(
    given_part: dict[str, Any], stored: dict[str, Any]
):
    [item] = items_of([{"role": "user", "content": [given_part]}], max_size=SIZE)
    assert item["content"] == [stored]


def test_ids_are_ours_whatever_was_sent():
    sent = {"type": "message", "id": "msg_theirs", "status": "in_progress"}
    [item] = items_of([{**sent, "role": "user", "content": "Hi"}], max_size=SIZE)
    assert item["id"] != "msg_theirs"
    assert item["status"] == "completed"


def test_an_output_may_have_parts():
    output = [{"type": "input_image", "image_url": PIXEL}]
    sent = {"type": "function_call_output", "call_id": "c", "output": output}
    [item] = items_of([sent], max_size=SIZE)
    assert item["output"] == [{**output[0], "detail": "auto"}]


@pytest.mark.parametrize("field", ["image_url", "file_data"])
def test_files_inside_a_message_count_toward_its_size(field: str):
    kind = "input_image" if field == "image_url" else "input_file"

    def sent(size: int) -> list[Any]:
        content = [{"type": kind, field: PIXEL.rstrip("=") + "A" * size}]
        return [{"role": "user", "content": content}]

    items_of(sent(800), max_size=SIZE)
    with pytest.raises(InputSizeError, match="refer to it by its 'file_id'"):
        items_of(sent(4000), max_size=SIZE)


def test_the_size_is_counted_in_bytes():
    items_of("x" * 900, max_size=SIZE)
    with pytest.raises(InputSizeError, match="the limit is 1000"):
        items_of("é" * 600, max_size=SIZE)


def test_options_are_stored_unchanged():
    options = {
        "temperature": 0,
        "top_p": 1.0,
        "max_output_tokens": 100,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {
            "format": {
                "type": "json_schema",
                "name": "answer",
                "schema": {"type": "object"},
                "strict": True,
            },
            "verbosity": "low",
        },
        "tool_choice": {"type": "function", "name": "now"},
        "parallel_tool_calls": False,
        "metadata": {"ticket": "7"},
    }
    assert options_of(options) == options
    assert options_of({"tool_choice": "required", "text": None}) == {
        "tool_choice": "required"
    }


def test_null_equals_absence_and_the_schema_documents_it():
    for name, schema in OPTIONS["properties"].items():
        assert any(kind.get("nullable") for kind in schema.get("oneOf", [schema]))
        assert options_of({name: None}) == {}
        for inner, inner_schema in schema.get("properties", {}).items():
            assert inner_schema["nullable"] is True
            assert options_of({name: {inner: None}}) == {name: {}}


def test_a_schema_may_be_deep_but_not_bottomless():
    schema: dict[str, Any] = {}
    for _ in range(100):
        schema = {"items": schema}
    form = {"type": "json_schema", "name": "a", "schema": schema}
    with pytest.raises(InputError, match="nested more than"):
        options_of({"text": {"format": form}})


@pytest.mark.parametrize(
    ("value", "deeper"), [(1, False), ([], False), ([[1]], False), ([[[1]]], True)]
)
def test_depth_is_counted_in_containers(value: Any, deeper: bool):
    assert is_deeper(value, 2) is deeper


def refused_at(check: Callable[[Any], Any], value: Any) -> str | None:
    """The place that was refused, or None. Nothing else may be raised."""
    try:
        check(value)
    except InputError as exc:
        return exc.param if str(exc).startswith(f"{exc.param}: ") else str(exc)
    return None


@given(JSON)
def test_any_json_is_taken_or_refused_by_name(value: Any):
    items = refused_at(partial(items_of, max_size=SIZE), value)
    options = refused_at(options_of, value)
    assert items is None or re.match(r"input(\[\d+\]|\Z)", items)
    assert options is None or re.match(r"options(\.|\Z)", options)


# Tools that the client brings

SCREEN = {"type": "computer_screenshot", "image_url": "https://a.example/b.png"}


def test_functions_are_stored_in_the_responses_shape():
    options = options_of(
        {
            "tools": [
                {"type": "function", "name": "f", "description": None},
                {"type": "web_search", "search_context_size": "low"},
            ],
            "server_tools": ["a", "a", "b"],
        }
    )
    assert options["tools"] == [
        {
            "type": "function",
            "name": "f",
            "description": "",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {"type": "web_search", "search_context_size": "low"},
    ]
    assert options["server_tools"] == ["a", "b"]
    assert options_of({"server_tools": []}) == {"server_tools": []}


def function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "name": "f", **fields}


@pytest.mark.parametrize(
    ("tools", "param", "problem"),
    [
        ("f", "options.tools", "expected a list of tools"),
        ([function()] * 129, "options.tools", "at most 128 tools"),
        (["f"], "options.tools[0]", "expected an object"),
        ([{"name": "f"}], "options.tools[0].type", "missing"),
        ([{"type": "custom", "name": "f"}], "options.tools[0].type", "'custom' cannot"),
        ([{"type": 7}], "options.tools[0].type", "7 cannot be declared"),
        ([{"type": "Web Search"}], "options.tools[0].type", "cannot be declared"),
        ([{"type": "function"}], "options.tools[0].name", "missing"),
        ([function(name="a b")], "options.tools[0].name", "64 letters"),
        ([function(), function()], "options.tools[1].name", "two functions are named"),
        ([function(function={})], "options.tools[0].function", "unknown"),
        ([function(strict="no")], "options.tools[0].strict", "true or false"),
        ([function(description="x" * 10_001)], "options.tools[0].description", "most"),
        ([function(parameters=[])], "options.tools[0].parameters", "an object"),
        (
            [function(parameters={"type": "string"})],
            "options.tools[0].parameters",
            "at type: arguments must be an object",
        ),
        (
            [
                function(
                    parameters={"type": "object", "properties": {"a": {"type": "int"}}}
                )
            ],
            "options.tools[0].parameters",
            "at properties.a.type: ",
        ),
        (
            [function(parameters={"type": "object", "$ref": "https://a.example/b"})],
            "options.tools[0].parameters",
            "never fetched",
        ),
        (
            [{"type": "mcp", "server_url": "https://a.example", "authorization": "t"}],
            "options.tools[0].authorization",
            "stored unencrypted",
        ),
    ],
)
def test_an_invalid_tool_declaration_is_refused_with_its_path(
    tools: Any, param: str, problem: str
):
    with pytest.raises(InputError) as raised:
        options_of({"tools": tools})
    assert raised.value.param == param
    assert problem in str(raised.value)


def test_screenshots_and_approvals_are_items():
    checks = [{"id": "sc_1", "code": "malicious"}]
    seen, allowed = items_of(
        [
            {
                "type": "computer_call_output",
                "id": "theirs",
                "call_id": "c1",
                "output": SCREEN,
                "acknowledged_safety_checks": checks,
            },
            {
                "type": "mcp_approval_response",
                "approval_request_id": "mcpr_1",
                "approve": True,
            },
        ],
        max_size=SIZE,
    )
    assert seen["id"].startswith("cuo_")
    assert (seen["output"], seen["acknowledged_safety_checks"]) == (SCREEN, checks)
    assert allowed["id"].startswith("mcpr_")
    assert (allowed["approval_request_id"], allowed["approve"]) == ("mcpr_1", True)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output": SCREEN}, "input[0].call_id"),
        ({"call_id": "c1"}, "input[0].output"),
        ({"call_id": "c1", "output": "x"}, "input[0].output"),
        (
            {"call_id": "c1", "output": {**SCREEN, "type": "input_image"}},
            "input[0].output.type",
        ),
        (
            {"call_id": "c1", "output": {**SCREEN, "image_url": "file:///x"}},
            "input[0].output.image_url",
        ),
        (
            {"call_id": "c1", "output": SCREEN, "acknowledged_safety_checks": [{}]},
            "input[0].acknowledged_safety_checks[0].id",
        ),
    ],
)
def test_a_screen_that_cannot_be_shown_is_refused(fields: dict, param: str):
    with pytest.raises(InputError) as raised:
        items_of([{"type": "computer_call_output", **fields}], max_size=SIZE)
    assert raised.value.param == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"approve": True}, "input[0].approval_request_id"),
        ({"approval_request_id": "a"}, "input[0].approve"),
        ({"approval_request_id": "a", "approve": "yes"}, "input[0].approve"),
    ],
)
def test_an_approval_names_the_call_and_the_decision(fields: dict, param: str):
    with pytest.raises(InputError) as raised:
        items_of([{"type": "mcp_approval_response", **fields}], max_size=SIZE)
    assert raised.value.param == param
