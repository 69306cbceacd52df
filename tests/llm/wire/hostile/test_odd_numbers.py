"""Odd numbers of a provider: usage that is unknown, and JSON that rows cannot hold."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from llm.errors import BadResponse
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.delta_reader import DeltaReader, decode_body
from llm.wire.deltas import FinishDelta
from llm.wire.response_builder import ResponseBuilder

Codec = OpenAIChatCodec | OpenAIResponsesCodec | AnthropicCodec | GeminiCodec
#: Placeholders for `usage` and for the reason, without quotes.
USAGE, REASON, EXTRA = '"@usage"', '"@reason"', '"@extra"'


def chat(**changed: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "@reason", **changed}
    return {"id": "c1", "model": "m", "usage": "@usage", "choices": [choice]}


RESPONSE: dict[str, Any] = {
    "id": "r1",
    "model": "m",
    "status": "completed",
    "usage": "@usage",
    "output": [
        {"type": "web_search_call", "id": "ws_1", "action": "@extra"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
        },
    ],
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "model": "m",
    "content": [
        {"type": "redacted_thinking", "data": "@extra"},
        {"type": "text", "text": "Hi"},
    ],
    "stop_reason": "@reason",
    "usage": "@usage",
}
BEGUN = {**MESSAGE, "content": [], "stop_reason": None, "usage": None}
CANDIDATE = {
    "content": {"parts": [{"hologram": "@extra"}, {"text": "Hi"}]},
    "finishReason": "@reason",
}
GEMINI = {"candidates": [CANDIDATE], "usageMetadata": "@usage"}
THOUGHT = {"type": "reasoning.encrypted", "data": "@extra"}
ASSISTANT_MESSAGE = {
    "role": "assistant",
    "content": "Hi",
    "reasoning_details": [THOUGHT],
}

WIRES: dict[str, tuple[Codec, list[dict[str, Any]], dict[str, Any]]] = {
    "chat": (
        OpenAIChatCodec(),
        [chat(delta=ASSISTANT_MESSAGE, finish_reason=None), chat(delta={})],
        chat(message=ASSISTANT_MESSAGE),
    ),
    "responses": (
        OpenAIResponsesCodec(),
        [{"type": "response.completed", "response": RESPONSE}],
        RESPONSE,
    ),
    "messages": (
        AnthropicCodec(),
        [
            {"type": "message_start", "message": BEGUN},
            *(
                event
                for index, block in enumerate(MESSAGE["content"])
                for event in (
                    {
                        "type": "content_block_start",
                        "index": index,
                        "content_block": block,
                    },
                    {"type": "content_block_stop", "index": index},
                )
            ),
            {
                "type": "message_delta",
                "delta": {"stop_reason": "@reason"},
                "usage": "@usage",
            },
            {"type": "message_stop"},
        ],
        MESSAGE,
    ),
    "gemini": (GeminiCodec(), [GEMINI], GEMINI),
}
#: Names of all counts of each wire, and of the objects of details.
NAMES = {
    "chat": ["prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens"],
    "responses": ["input_tokens", "output_tokens", "total_tokens"],
    "messages": [
        "input_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "output_tokens",
    ],
    "gemini": [
        "promptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "toolUsePromptTokenCount",
        "cachedContentTokenCount",
    ],
}
DETAILS = {
    "chat": ["prompt_tokens_details", "completion_tokens_details", "cost"],
    "responses": ["input_tokens_details", "output_tokens_details", "cost"],
    "messages": ["output_tokens_details", "cost"],
    "gemini": ["promptTokensDetails"],
}
REASONS = {
    "chat": "stop",
    "responses": "completed",
    "messages": "end_turn",
    "gemini": "STOP",
}
Read = Callable[..., ResponseBuilder]

each_wire = pytest.mark.parametrize("wire", WIRES)
each_way = pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])


def read(
    wire: str,
    streams: bool,
    *,
    usage: str = "null",
    reason: str | None = None,
    extra: str = '"x"',
) -> ResponseBuilder:
    """What is built of an answer with these texts of JSON in it. Raises LLMError."""
    codec, events, answer = WIRES[wire]

    def with_values(value: Any) -> bytes:
        text = json.dumps(value).replace(USAGE, usage).replace(EXTRA, extra)
        finish_reason = json.dumps(REASONS[wire]) if reason is None else reason
        return text.replace(REASON, finish_reason).encode()

    if streams:
        reader = DeltaReader(codec.decoder())
        deltas = []
        for event in events:
            if reader.error is None:
                deltas += reader.feed(b"data: %b\n\n" % with_values(event))
        if reader.error is None:
            deltas += reader.close()
        if reader.error:
            raise reader.error
    else:
        deltas, error = decode_body(codec.decode, with_values(answer))
        if error:
            raise error
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.begin_call()
    builder.feed(deltas)
    builder.end_call()
    builder.complete()
    return builder


def text_of(builder: ResponseBuilder) -> str:
    [message] = [item for item in builder.output if item["type"] == "message"]
    text: str = message["content"][0]["text"]
    return text


def assert_can_be_stored(builder: ResponseBuilder) -> None:
    stored = [builder.response(), builder.proofs]
    assert json.loads(json.dumps(stored, allow_nan=False)) == orjson.loads(
        orjson.dumps(stored)
    )


@each_wire
@each_way
def test_a_count_may_be_a_text(wire: str, streams: bool):
    usage = ",".join(f'"{name}":"12"' for name in NAMES[wire])
    counted = read(wire, streams, usage=f"{{{usage}}}").call_usage
    usage = usage.replace('"12"', "12")
    known = read(wire, streams, usage=f"{{{usage}}}").call_usage
    assert known.input_tokens
    for name in ("input_tokens", "output_tokens", "cached_tokens"):
        assert getattr(counted, name) == getattr(known, name)


@each_wire
@each_way
@pytest.mark.parametrize(
    "number",
    [
        *(str(2**53), str(10**18), str(2**63), str(2**64 - 1), str(10**19)),
        *(
            str(10**20),
            "1e40",
            "-5",
            "1.5",
            '"-5"',
            '"1e3"',
            '"x"',
            "true",
            "null",
            "[]",
            "{}",
        ),
    ],
)
def test_an_odd_count_is_unknown(wire: str, streams: bool, number: str):
    usage = ",".join(f'"{name}":{number}' for name in NAMES[wire])
    built = read(wire, streams, usage=f"{{{usage}}}")
    assert text_of(built) == "Hi"
    call = built.call_usage
    counts = [call.input_tokens, call.output_tokens, call.cached_tokens]
    assert not any(counts)
    assert_can_be_stored(built)


@each_wire
@each_way
def test_the_largest_counts_can_be_published(wire: str, streams: bool):
    usage = ",".join(f'"{name}":{2**53 - 1}' for name in NAMES[wire])
    built = read(wire, streams, usage=f"{{{usage}}}")
    assert built.call_usage.input_tokens
    assert_can_be_stored(built)


@each_wire
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_count_that_is_no_json_costs_no_streamed_answer(wire: str, number: str):
    names = [*NAMES[wire], "cost"]
    usage = ",".join(f'"{name}":{number}' for name in names)
    built = read(wire, True, usage=f"{{{usage}}}")
    assert text_of(built) == "Hi"
    assert not built.call_usage.input_tokens
    assert built.call_usage.cost is None
    assert_can_be_stored(built)


@each_wire
@each_way
@pytest.mark.parametrize("odd", ["7", '"x"', "[]", "[1]", "null", "true"])
def test_odd_details_or_odd_usage_are_unknown(wire: str, streams: bool, odd: str):
    known = ",".join(f'"{name}":4' for name in NAMES[wire])
    for usage in (odd, *(f'{{{known},"{at}":{odd}}}' for at in DETAILS[wire])):
        built = read(wire, streams, usage=usage)
        assert text_of(built) == "Hi"
        assert_can_be_stored(built)
        if usage != odd:
            assert built.call_usage.output_tokens


@each_wire
@each_way
@pytest.mark.parametrize("odd", ["7", "true", "[7]", '{"a":1}'])
def test_a_reason_that_is_no_text_is_an_unknown_one(wire: str, streams: bool, odd: str):
    built = read(wire, streams, reason=odd)
    assert text_of(built) == "Hi"
    assert isinstance(built.finish, FinishDelta)
    assert isinstance(built.finish.raw, str)
    assert built.response()["status"] in ("completed", "incomplete")


@each_wire
@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", f"[NaN,{'9' * 40}]", "[NaN,1e999]", "9" * 5000]
)
def test_numbers_beyond_a_column_are_not_stored(wire: str, number: str):
    built = read(wire, True, extra=f'{{"n":{number},"half":"\\ud83d"}}')
    assert text_of(built) == "Hi"
    assert_can_be_stored(built)


@each_wire
@each_way
@pytest.mark.parametrize("depth", [300, 1000, 5000, 100_000])
def test_json_that_is_nested_too_deeply_is_a_bad_response(
    wire: str, streams: bool, depth: int
):
    with pytest.raises(BadResponse):
        read(wire, streams, extra="[" * depth + "]" * depth)


@each_way
@pytest.mark.parametrize("depth", [300, 1000, 5000])
def test_arguments_that_are_nested_too_deeply_are_a_bad_response(
    streams: bool, depth: int
):
    deep = "[" * depth + "]" * depth
    part = {"functionCall": {"name": "f", "args": {"a": "@"}}}
    content = {"candidates": [{"content": {"parts": [part]}, "finishReason": "STOP"}]}
    body = json.dumps(content).replace('"@"', deep).encode()
    codec = GeminiCodec()
    if streams:
        reader = DeltaReader(codec.decoder())
        reader.feed(b"data: %b\n\n" % body)
        assert isinstance(reader.error, BadResponse)
    else:
        assert isinstance(decode_body(codec.decode, body)[1], BadResponse)


@pytest.mark.parametrize(
    "text", ['{"a":NaN,"b":"\\ud83d"}', '{"a":' + "9" * 40 + ',"b":"\\ud83d"}']
)
def test_numbers_of_a_call_beyond_a_column_are_not_stored(text: str):
    reader = DeltaReader(AnthropicCodec().decoder())
    block = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    delta = {"type": "input_json_delta", "partial_json": text}
    deltas = []
    for event in (
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
    ):
        deltas += reader.feed(b"data: %b\n\n" % json.dumps(event).encode())
    assert reader.error is None
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.begin_call()
    builder.feed(deltas)
    builder.end_call()
    assert_can_be_stored(builder)
