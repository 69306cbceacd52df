from __future__ import annotations

from typing import Any

import pytest

from conversations.staff.item_text_corrections import (
    apply_corrections,
    item_texts,
    with_text,
)
from llm.wire.items import Item, function_call_output, message, user_message

CALL: Item = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "now",
    "arguments": '{"zone": "Paris"}',
    "status": "completed",
}
THOUGHT: Item = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "short"}],
    "content": [{"type": "reasoning_text", "text": "long"}],
}


def answer_with(text: str) -> Item:
    item = message("assistant", text)
    item["content"][0]["annotations"] = [{"type": "url_citation", "start_index": 1}]
    item["content"][0]["logprobs"] = [{"token": text}]
    return item


@pytest.mark.parametrize(
    ("item", "labels"),
    [
        (user_message("Hi"), ["content 1"]),
        (CALL, ["arguments"]),
        (function_call_output("call_1", "12:00"), ["output"]),
        (
            function_call_output("call_1", [{"type": "input_text", "text": "a"}]),
            ["output 1"],
        ),
        (THOUGHT, ["summary 1", "content 1"]),
        ({"type": "web_search_call", "id": "ws_1"}, []),
    ],
)
def test_every_text_has_its_place(item: Item, labels: list[str]):
    assert [text_location.label for text_location in item_texts(item)] == labels
    for text_location in item_texts(item):
        changed = with_text(item, text_location.path, "other")
        assert "other" in [found.text for found in item_texts(changed)]
        assert text_location in item_texts(item)  # the original is as it was


def test_annotations_of_a_corrected_text_are_removed():
    old = answer_with("the secret")
    new = apply_corrections(old, old, {("content", 0, "text"): "gone"})
    assert "secret" not in str(new)
    assert new["content"][0]["annotations"] == []


def test_a_text_changed_in_the_json_loses_its_notes_as_well():
    old, new = answer_with("the secret"), answer_with("the secret")
    new |= {"id": old["id"]}
    new["content"][0]["text"] = "gone"
    assert "secret" not in str(apply_corrections(old, new, {}))


def test_an_unchanged_text_keeps_its_annotations():
    old = answer_with("as it was")
    assert apply_corrections(old, old, {}) == old


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "reasoning"}, "'type' cannot be changed"),
        ({"id": "msg_other"}, "'id' cannot be changed"),
        ({"role": "system"}, "'role' cannot be changed"),
        ({"content": 5}, "'content' must be a text or a list"),
        ({"content": None}, "'content' must be a text or a list"),
        ({"content": ["Hi"]}, "must be an object with a type"),
        ({"content": [{"type": "output_text", "text": 5}]}, "must be a text"),
    ],
)
def test_an_invalid_correction_is_refused(change: dict[str, Any], problem: str):
    old = answer_with("Hi")
    with pytest.raises(ValueError, match=problem):
        apply_corrections(old, {**old, **change}, {})


def test_a_correction_of_a_missing_text_is_refused():
    old = answer_with("Hi")
    with pytest.raises(ValueError, match="no longer there"):
        apply_corrections(old, {**old, "content": []}, {("content", 0, "text"): "Ho"})
