from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.errors import BadResponse, LLMError, ProviderDown
from llm.forms.fields import is_storable_json
from llm.wire.delta_reader import DeltaReader, decode_body
from llm.wire.deltas import (
    AnnotationDelta,
    Delta,
    FinishDelta,
    ItemDelta,
    ProofDelta,
    StartDelta,
    ToolCallDelta,
)
from llm.wire.model_lists import parse_models
from llm.wire.response import arguments_of
from llm.wire.sanitize import NUL, replace_nul, sanitize_json, sanitize_text

TEXT = st.text(st.characters(codec=None))


def json_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
        lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
        max_leaves=10,
    )


JSON = json_of(TEXT)
WHOLE = json_of(st.text(st.sampled_from('\0\\u0a😀"')))


@given(JSON)
def test_what_is_mended_can_be_kept_and_sent_on(value: Any):
    assert is_storable_json(orjson.dumps(sanitize_json(value)).decode())


@given(JSON)
def test_only_what_cannot_be_kept_is_changed(value: Any):
    once = sanitize_json(value)
    assert sanitize_json(once) == once


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a\0b", "a\ufffdb"),
        ("a\ud83d", "a\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("naïve 😀", "naïve 😀"),
    ],
)
def test_a_letter_that_cannot_be_kept_is_seen_to_be_missing(text: str, kept: str):
    assert sanitize_text(text) == kept


@pytest.mark.parametrize(
    "delta",
    [
        StartDelta("r\0", "m\ud800"),
        ToolCallDelta(0, "c\0", "f\ud800"),
        AnnotationDelta(0, {"url": "\0", "\ud800": 1}),
        ItemDelta(0, {"type": "web_search_call", "action": {"query": ["\0\ud800"]}}),
        ProofDelta(0, {"encrypted_content": "\0", "summary": [{"text": "\ud800"}]}),
        FinishDelta("stop", "\0\ud800"),
    ],
)
def test_what_a_provider_says_whole_is_mended_as_it_is_read(delta: Delta):
    decode_body(lambda body: [delta], b"")
    told = {n: getattr(delta, n) for n in type(delta).__slots__}
    assert NUL not in orjson.dumps(told)


def test_an_error_can_be_kept_whatever_was_said_in_it():
    words = {"detail": "\0", "upstream_type": "\0", "upstream_code": "\ud800"}
    error: LLMError = ProviderDown("a\0b\ud800", param="\0", request_id="\0", **words)
    told = [str(error), *vars(error).values()]
    assert NUL not in orjson.dumps(told)


def test_a_tool_is_given_no_nul():
    call = {"arguments": r'{"text": "a\u0000b", "code": "\\u0000"}'}
    assert arguments_of(call) == {"text": "a\ufffdb", "code": "\\u0000"}


def test_a_listed_model_has_no_nul_in_its_name():
    [model] = parse_models(rb'{"data": [{"id": "m\u0000"}]}')
    assert model.name == "m\ufffd"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (r'{"a": "\u0000"}', False),
        (r'{"\u0000": 1}', False),
        (r'"\ud800"', False),
        (r'"\\u0000"', True),
        (r'"\ud83d\ude00"', True),
    ],
)
def test_json_that_people_write_holds_only_what_can_be_kept(text: str, kept: bool):
    assert is_storable_json(text) is kept


@given(WHOLE)
def test_json_is_mended_alike_where_it_is_written_and_where_it_is_read(value: Any):
    assert orjson.loads(replace_nul(orjson.dumps(value))) == sanitize_json(value)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (rb'"\u0000"', rb'"\ufffd"'),
        (rb'"\\u0000"', rb'"\\u0000"'),
        (rb'"\\\u0000\u0000"', rb'"\\\ufffd\ufffd"'),
    ],
)
def test_what_looks_like_nul_is_let_be(told: bytes, kept: bytes):
    assert replace_nul(told) == kept


@pytest.mark.parametrize("depth", [300, 1000])
def test_what_is_nested_without_end_is_a_broken_answer(depth: int):
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    delta = ItemDelta(0, {"type": "web_search_call", "action": deep})
    with pytest.raises(BadResponse):
        decode_body(lambda body: [delta], b"")

    class Decoder:
        def feed(self, event: Any) -> list[Delta]:
            return [StartDelta("r"), delta]

        def close(self) -> list[Delta]:
            return []

    reader = DeltaReader(Decoder())
    assert reader.feed(b"data: {}\n\n") == [StartDelta("r")]
    assert isinstance(reader.error, BadResponse)
