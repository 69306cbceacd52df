"""What library code may give as input: converted, or refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from llm.errors import BadRequest
from llm.generation.input_items import as_items
from llm.wire.items import message, user_message

PIXEL = "data:image/png;base64,iVBORw0KGgo="
SOURCE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def shapes(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what is made anew each time."""
    return [{k: v for k, v in i.items() if k not in ("id", "status")} for i in items]


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts)}


def call(name: str = "look", arguments: str = '{"at":1}') -> dict[str, Any]:
    kind = {"type": "function_call", "call_id": "c1"}
    return {**kind, "name": name, "arguments": arguments}


def output(value: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": "c1", "output": value}


TEXT = {"type": "input_text", "text": "See"}
IMAGE = {"type": "input_image", "image_url": PIXEL}
SAID = {"type": "output_text", "text": "Hm", "annotations": [], "logprobs": []}
CHAT_CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at":1}'},
}


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ({"role": "user", "content": [TEXT, IMAGE]}, [user(TEXT, IMAGE)]),
        (
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "See"},
                    {"type": "image_url", "image_url": {"url": PIXEL}},
                    {"type": "file", "file": {"file_id": "f1"}},
                    {"type": "image", "source": SOURCE},
                    {
                        "type": "document",
                        "source": {"type": "url", "url": "https://a.test/a.pdf"},
                    },
                ],
            },
            [
                user(
                    TEXT,
                    IMAGE,
                    {"type": "input_file", "file_id": "f1"},
                    IMAGE,
                    {"type": "input_file", "file_url": "https://a.test/a.pdf"},
                )
            ],
        ),
        (
            {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
            [call()],
        ),
        (
            {
                "role": "assistant",
                "content": "Hm",
                "tool_calls": [CHAT_CALL],
                "reasoning_content": "Think.",
                "refusal": None,
                "annotations": [],
            },
            [
                {
                    "type": "reasoning",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "Think."}],
                },
                {"type": "message", "role": "assistant", "content": [SAID]},
                call(),
            ],
        ),
        ({"role": "tool", "tool_call_id": "c1", "content": "1"}, [output("1")]),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Think.", "signature": "x"},
                    {"type": "text", "text": "Hm"},
                    {
                        "type": "tool_use",
                        "id": "c1",
                        "name": "look",
                        "input": {"at": 1},
                    },
                ],
            },
            [
                {
                    "type": "reasoning",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "Think."}],
                },
                {"type": "message", "role": "assistant", "content": [SAID]},
                call(),
            ],
        ),
        (
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "1"},
                    "See",
                ],
            },
            [output("1"), user(TEXT)],
        ),
        (
            output([{"type": "image", "source": SOURCE}]),
            [output([IMAGE])],
        ),
    ],
)
def test_shapes_of_other_vendors_are_converted(given: Any, items: Any):
    assert shapes(as_items([given])) == items


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (
            [user(TEXT, {"type": "input_image_url", "url": PIXEL})],
            "[0].content[1].type",
        ),
        (["Hi", user({"type": "tool_use", "id": "c"})], "[1].content[0].type"),
        ([user({"type": "input_image", "url": PIXEL})], "[0].content[0]"),
        ([user({"type": "image", "source": {"type": "odd"}})], "[0].content[0]"),
        ([user({"type": "image_url", "image_url": 7})], "[0].content[0]"),
        ([user({"text": "See"})], "[0].content[0].type"),
        ([user({"type": ["text"]})], "[0].content[0].type"),
        ([output([TEXT, {"type": "odd"}])], "[0].output[1].type"),
        ([{"type": "tool_result", "tool_use_id": "c"}], "[0].type"),
        ({"role": "user", "parts": [{"text": "Hi"}]}, ".parts"),
        ({"role": "user", "content": "Hi", "name": "Ada"}, ".name"),
        ({"role": "model", "content": "Hi"}, ".role"),
        ({"role": "user"}, ".content"),
        ({"role": "user", "content": 7}, ".content"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, ".tool_calls[0]"),
        ({"role": "assistant", "tool_calls": 7}, ".tool_calls"),
        ({"role": "user", "content": "Hi", "tool_calls": [CHAT_CALL]}, ".role"),
        ({"role": "tool", "content": "1"}, ".tool_call_id"),
        ([7], "[0]"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_its_place(given: Any, place: str):
    with pytest.raises(BadRequest) as refused:
        as_items(given)
    assert refused.value.param == f"input{place}"
    assert str(refused.value).startswith(f"input{place}: ")


def test_canonical_items_stay_as_they_are():
    items = [
        user_message("Hi"),
        {
            **message("assistant", "Hm"),
            "phase": "commentary",
            "provider_data": {"a": 1},
        },
        {**message("assistant", ""), "content": [], "parley:interrupted": True},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        output("1"),
    ]
    assert as_items(items) == items
