"""A field inside a body's objects reaches hosts of another API, or is named."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import BadRequest
from llm.wire.facades import body_checks, messages_request
from llm.wire.facades.losses import find_losses
from llm.wire.facades.request_conversion import portable
from llm.wire.items import Item

_SCHEMA = {"type": "object", "properties": {}}
_IMAGE = "data:image/png;base64,AAAA"
_SOURCE = {"type": "text", "media_type": "text/plain", "data": "x"}
_RESULT = {
    "type": "search_result",
    "source": "https://a.example/b",
    "title": "Hours",
    "content": [{"type": "text", "text": "Open at NINE."}],
    "citations": {"enabled": True},
}
#: Objects of each kind, each with all fields that are read.
BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi"},
                    {"type": "image_url", "image_url": {"url": _IMAGE}},
                ],
            }
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "reasoning": {"effort": "low"},
    },
    "messages": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Hi"},
                    {"type": "document", "source": _SOURCE, "title": "t"},
                ],
            }
        ],
        "tools": [{"name": "f", "input_schema": _SCHEMA, "strict": True}],
        "metadata": {"user_id": "u"},
    },
    "responses": {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Hi"}],
            }
        ],
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
    },
}
#: What a client may put where any JSON is allowed, or what has no fields of its own.
_OPAQUE = {"function", "image_url", "input_schema", "parameters", "source"}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects inside of `value`."""
    if isinstance(value, list):
        for each in value:
            yield from _objects(each)
    elif isinstance(value, dict):
        yield value
        for name, each in value.items():
            if name not in _OPAQUE:
                yield from _objects(each)


@pytest.mark.parametrize("api", BODIES)
@given(name=st.from_regex("new_[a-z]{1,9}", fullmatch=True), data=st.data())
def test_an_unknown_field_of_any_object_is_named(
    api: str, name: str, data: st.DataObject
):
    body = copy.deepcopy(BODIES[api])
    inside = [each for value in body.values() for each in _objects(value)]
    chosen = data.draw(st.sampled_from(inside))
    assert not any("new_" in each for each in find_losses(api, body))
    chosen[name] = data.draw(st.sampled_from([1, "a", True, {"b": 1}, [1]]))
    assert any(each.endswith(f".{name}") for each in find_losses(api, body))


@pytest.mark.parametrize(
    ("api", "part", "names"),
    [
        ("messages", {"tools": [{"name": "f", "input_schema": {}, field: [1]}]}, [text])
        for field in (
            "allowed_callers",
            "defer_loading",
            "eager_input_streaming",
            "input_examples",
        )
        for text in (f"tools.{field}",)
    ]
    + [
        ("messages", {"metadata": {"user_id": "u", "team": "x"}}, ["metadata.team"]),
        (
            "chat",
            {"messages": [{"role": "assistant", "content": "On", "prefix": True}]},
            ["messages.prefix"],
        ),
        (
            "chat",
            {"reasoning": {"max_tokens": 5, "exclude": True}},
            ["reasoning.max_tokens", "reasoning.exclude"],
        ),
        (
            "chat",
            {"tools": [{**BODIES["chat"]["tools"][0], "cache_control": {"a": 1}}]},
            ["cache_control"],
        ),
    ],
)
def test_fields_that_vanished_are_named(
    api: str, part: dict[str, Any], names: list[str]
):
    assert find_losses(api, {**BODIES[api], **part}) == names


def test_what_a_client_repeats_of_an_answer_is_no_loss():
    answer = {
        "role": "assistant",
        "content": "Hi",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    messages = [*BODIES["chat"]["messages"], answer]
    assert find_losses("chat", {**BODIES["chat"], "messages": messages}) == []


# Blocks of Messages that have an equivalent


def _items(*content: dict[str, Any]) -> list[Item]:
    body = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": list(content)}],
    }
    body_checks.check_messages(body)
    request, _ = portable(messages_request.request_of(body))
    return list(request.items)


def _texts(parts: list[dict[str, Any]]) -> list[str]:
    return [part["text"] for part in parts]


def test_a_search_result_becomes_its_text_with_title_and_address():
    (message,) = _items(_RESULT)
    wanted = ["[Hours](https://a.example/b)", "Open at NINE."]
    assert _texts(message["content"]) == wanted
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [_RESULT]}
    (output,) = _items(result)
    assert _texts(output["output"]) == wanted


@pytest.mark.parametrize("content", ["A tale", [{"type": "text", "text": "A tale"}]])
def test_a_document_of_passages_becomes_its_text(content: Any):
    source = {"type": "content", "content": content}
    (message,) = _items({"type": "document", "source": source, "title": "Tales"})
    assert _texts(message["content"]) == ["Tales", "A tale"]


def test_a_found_tool_is_its_name_and_an_upload_is_left_out_and_named():
    found = [{"type": "tool_reference", "tool_name": "look"}]
    result = {"type": "tool_result", "tool_use_id": "t1", "content": found}
    upload = {"type": "container_upload", "file_id": "file_1"}
    text = {"type": "text", "text": "Hi"}
    output, message = _items(result, upload, text)
    assert _texts(output["output"]) == ["look"]
    assert _texts(message["content"]) == ["Hi"]
    messages = [{"role": "user", "content": [upload]}]
    lost = find_losses("messages", {"messages": messages})
    assert lost == ["messages.container_upload"]


def test_a_file_of_its_host_is_refused():
    source = {"type": "file", "file_id": "file_1"}
    with pytest.raises(BadRequest):
        _items({"type": "document", "source": source})
