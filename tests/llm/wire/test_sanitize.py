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
from llm.wire.response_builder import arguments_of
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
def test_sanitized_text_can_be_stored_and_sent_on(value: Any):
    assert is_storable_json(orjson.dumps(sanitize_json(value)).decode())


@given(JSON)
def test_only_invalid_characters_are_changed(value: Any):
    once = sanitize_json(value)
    assert sanitize_json(once) == once


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\0b", "a\ufffdb"),
        ("a\ud83d", "a\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("naïve 😀", "naïve 😀"),
    ],
)
def test_an_invalid_character_is_visibly_replaced(text: str, expected: str):
    assert sanitize_text(text) == expected


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
def test_a_whole_answer_is_sanitized_while_decoding(delta: Delta):
    decode_body(lambda body: [delta], b"")
    values = {n: getattr(delta, n) for n in type(delta).__slots__}
    assert NUL not in orjson.dumps(values)


def test_an_error_can_be_stored_whatever_it_quotes():
    words = {"detail": "\0", "upstream_type": "\0", "upstream_code": "\ud800"}
    error: LLMError = ProviderDown("a\0b\ud800", param="\0", request_id="\0", **words)
    texts = [str(error), *vars(error).values()]
    assert NUL not in orjson.dumps(texts)


def test_a_tool_is_given_no_nul():
    call = {"arguments": r'{"text": "a\u0000b", "code": "\\u0000"}'}
    assert arguments_of(call) == {"text": "a\ufffdb", "code": "\\u0000"}


def test_a_listed_model_has_no_nul_in_its_name():
    [model] = parse_models(rb'{"data": [{"id": "m\u0000"}]}')
    assert model.name == "m\ufffd"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'{"a": "\u0000"}', False),
        (r'{"\u0000": 1}', False),
        (r'"\ud800"', False),
        (r'"\\u0000"', True),
        (r'"\ud83d\ude00"', True),
    ],
)
def test_parsed_json_contains_only_valid_text(text: str, expected: bool):
    assert is_storable_json(text) is expected


@given(WHOLE)
def test_json_is_mended_alike_where_it_is_written_and_where_it_is_read(value: Any):
    assert orjson.loads(replace_nul(orjson.dumps(value))) == sanitize_json(value)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (rb'"\u0000"', rb'"\ufffd"'),
        (rb'"\\u0000"', rb'"\\u0000"'),
        (rb'"\\\u0000\u0000"', rb'"\\\ufffd\ufffd"'),
    ],
)
def test_text_that_looks_like_an_escaped_nul_is_unchanged(raw: bytes, expected: bytes):
    assert replace_nul(raw) == expected


@pytest.mark.parametrize("depth", [300, 1000])
def test_endless_nesting_is_a_bad_response(depth: int):
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    delta = ItemDelta(0, {"type": "web_search_call", "action": deep})
    deltas, error = decode_body(lambda body: [delta], b"")
    assert (deltas, type(error)) == ([], BadResponse)

    class Decoder:
        def feed(self, event: Any) -> list[Delta]:
            return [StartDelta("r"), delta]

        def close(self) -> list[Delta]:
            return []

    reader = DeltaReader(Decoder())
    assert reader.feed(b"data: {}\n\n") == [StartDelta("r")]
    assert isinstance(reader.error, BadResponse)
