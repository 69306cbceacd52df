"""Answers made to be slow: their work grows with their size, and their items end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from llm.errors import CutOff
from llm.wire.codec import Codec
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.codecs.openai_chat import tool_calls
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.delta_reader import DeltaReader
from llm.wire.deltas import MAX_ITEMS
from llm.wire.response_builder import ResponseBuilder
from tests.llm.wire.hostile.test_hostile_input import work

CHAT, RESPONSES = OpenAIChatCodec(), OpenAIResponsesCodec()
ANTHROPIC, GEMINI = AnthropicCodec(), GeminiCodec()
Make = Callable[[int], Iterable[Any]]  # the events of a stream, by their number


def completed(items: Iterable[Any]) -> Any:
    response = {"id": "r", "status": "completed", "output": list(items)}
    return {"type": "response.completed", "response": response}


def call(number: int) -> Any:
    id = f"call_{number}"
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}


def parts(*parts: Any) -> Any:
    return {"candidates": [{"content": {"parts": list(parts)}, "finishReason": "STOP"}]}


def text_block(index: int, *deltas: Any) -> Iterable[Any]:
    block = {"type": "thinking", "thinking": "a", "signature": "s"}
    if deltas:
        block = {"type": "text", "text": "a"}
    yield {"type": "content_block_start", "index": index, "content_block": block}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def chunk(**delta: Any) -> Any:
    return {"choices": [{"delta": delta}]}


def named(arguments: str) -> Any:
    return {"index": 0, "id": "a", "function": {"name": "f", "arguments": arguments}}


def image(number: int) -> Any:
    return {"image_url": {"url": f"data:image/png;base64,{number}"}}


def detail(number: int, **fields: Any) -> Any:
    return {"type": "reasoning.text", "text": "a", **fields}


#: Streams of `n` items.
ITEMS: dict[str, tuple[Codec, Make]] = {
    "Responses, at the end": (RESPONSES, lambda n: [completed(map(call, range(n)))]),
    "Responses, one by one": (
        RESPONSES,
        lambda n: [
            {"type": "response.output_item.done", "output_index": i, "item": call(i)}
            for i in range(n)
        ],
    ),
    "Responses, pieces": (
        RESPONSES,
        lambda n: [
            {
                "type": "response.output_text.delta",
                "item_id": f"msg_{i}",
                "output_index": i,
                "delta": "a",
            }
            for i in range(n)
        ],
    ),
    "Gemini": (
        GEMINI,
        lambda n: [parts(*({"text": "a", "thought": i % 2 > 0} for i in range(n)))],
    ),
    "Anthropic": (ANTHROPIC, lambda n: [e for i in range(n) for e in text_block(i)]),
    "Chat, pictures": (CHAT, lambda n: [chunk(images=list(map(image, range(n))))]),
    "Chat, text and reasoning": (
        CHAT,
        lambda n: [
            chunk(content="a") if i % 2 else chunk(reasoning_content="b")
            for i in range(n)
        ],
    ),
}


@pytest.mark.parametrize(("codec", "make"), ITEMS.values(), ids=ITEMS)
def test_an_answer_has_so_many_items_and_not_one_more(codec: Codec, make: Make):
    builder, error = answer(codec, make(MAX_ITEMS))
    assert isinstance(error, CutOff | None)  # the streams have no end of their own
    assert len(builder.output) == MAX_ITEMS
    builder, error = answer(codec, make(MAX_ITEMS + 500))
    assert error is not None
    assert f"{MAX_ITEMS:,} items" in error.detail
    assert len(builder.output) <= MAX_ITEMS


def answer(codec: Codec, events: Iterable[Any]) -> tuple[ResponseBuilder, Any]:
    reader = DeltaReader(codec.decoder())
    builder = ResponseBuilder(id="resp_1", model="m")
    builder.begin_call()
    for event in events:
        builder.feed(reader.feed(b"data: %b\n\n" % orjson.dumps(event)))
        if reader.error:
            break
    if reader.error is None:
        builder.feed(reader.close())
    builder.end_call()
    return builder, reader.error


def reasoning(n: int) -> Iterable[Any]:
    for i in range(n):
        type = "response.reasoning_summary_text.delta"
        yield {"type": type, "item_id": "rs_1", "summary_index": i, "delta": "a"}
    summary = [{"type": "summary_text", "text": "a"}] * n
    item = {"type": "reasoning", "id": "rs_1", "summary": summary}
    yield {"type": "response.output_item.done", "item": item}


def grounding(n: int) -> Iterable[Any]:
    answer = parts({"text": "é" * n})
    segment = {"startIndex": 2 * n - 2, "endIndex": 2 * n, "text": "é"}
    support = {"segment": segment, "groundingChunkIndices": [0]}
    answer["candidates"][0]["groundingMetadata"] = {
        "groundingChunks": [{"web": {"uri": "https://example.org"}}],
        "groundingSupports": [support] * n,
    }
    return [answer]


CITATION = {"type": "web_search_result_location", "url": "u", "cited_text": "c"}
#: Streams with one item of `n` parts.
PARTS: dict[str, tuple[Codec, Make]] = {
    "Responses, calls": (RESPONSES, lambda n: [completed(map(call, range(n)))]),
    "Responses, summaries": (RESPONSES, reasoning),
    "Gemini, sources": (GEMINI, grounding),
    "Anthropic, sources": (
        ANTHROPIC,
        lambda n: text_block(
            0, *[{"type": "citations_delta", "citation": CITATION}] * n
        ),
    ),
    "Chat, reasoning by index": (
        CHAT,
        lambda n: [
            chunk(reasoning_details=[detail(i, index=i) for i in range(n)]),
            chunk(content="a"),
        ],
    ),
    "Chat, reasoning by id": (
        CHAT,
        lambda n: [
            chunk(reasoning_details=[detail(i, index=0, id=str(i)) for i in range(n)]),
            chunk(content="a"),
        ],
    ),
    "Chat, arguments that may have ended, with id and name": (
        CHAT,
        lambda n: (
            [chunk(tool_calls=[named('{"k":{}')])]
            + [chunk(tool_calls=[named(',"a":{}')]) for _ in range(n)]
        ),
    ),
    "Chat, the end of whole arguments again and again": (
        CHAT,
        lambda n: (
            [chunk(tool_calls=[named('{"k":"%s"}' % ("a" * n))])]
            + [chunk(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}])] * n
        ),
    ),
    "Chat, sources before the text": (
        CHAT,
        lambda n: [
            chunk(annotations=[{"type": "url_citation", "url_citation": {}}] * n),
            chunk(content="a"),
        ],
    ),
}


def test_pieces_of_one_call_are_parsed_only_so_often(monkeypatch: Any):
    """A host without ids may begin the next call with any piece."""
    parsed = []
    loads = tool_calls.orjson.loads
    fake = SimpleNamespace(
        loads=lambda text: parsed.append(len(text)) or loads(text),
        JSONDecodeError=tool_calls.orjson.JSONDecodeError,
    )
    monkeypatch.setattr(tool_calls, "orjson", fake)
    piece = {"index": 0, "function": {"name": "f", "arguments": "{}" * 50}}
    builder, _ = answer(CHAT, [chunk(tool_calls=[piece])] * 500)
    assert sum(parsed) <= 2 * 500 * 100
    (call,) = builder.output
    assert len(call["arguments"]) == 500 * 100


@pytest.mark.parametrize(("codec", "make"), PARTS.values(), ids=PARTS)
def test_twice_the_answer_takes_twice_the_work(codec: Codec, make: Make):
    few, many = (work(partial(answer, codec, list(make(n)))) for n in (500, 1000))
    assert many < 2.2 * few
