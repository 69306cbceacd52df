from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.api.checks import InputError, InputTooLarge, is_deeper
from conversations.api.inputs import items_of, options_of
from llm.wire.items import text_of

PIXEL = "data:image/png;base64,iVBORw0KGgo="
PAGE = "data:application/pdf;base64,JVBERi0="
SIZE = 1000  # bytes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_a_string_is_what_the_user_says():
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
    ("given_part", "kept"),
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
def test_images_and_files_are_kept_in_one_form(
    given_part: dict[str, Any], kept: dict[str, Any]
):
    [item] = items_of([{"role": "user", "content": [given_part]}], max_size=SIZE)
    assert item["content"] == [kept]


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


def test_the_size_is_counted_in_bytes_without_the_files():
    content = [{"type": "input_image", "image_url": PIXEL.rstrip("=") + "A" * 4000}]
    items_of([{"role": "user", "content": content}], max_size=SIZE)
    items_of("x" * 900, max_size=SIZE)
    with pytest.raises(InputTooLarge, match="at most 1000 are taken"):
        items_of("é" * 600, max_size=SIZE)


def test_options_are_kept_as_they_came():
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
