"""Chat Completions traffic for tests, and what our codec makes of it."""

from __future__ import annotations

from typing import Any

import orjson

from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.deltas import Delta
from llm.wire.items import Item
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import SSEDecoder

CODEC = OpenAIChatCodec()
ISSUER = {"provider": "p", "model": "m", "route": "1:1"}
DONE = "[DONE]"


def chunk(delta: dict[str, Any] | None = None, finish: Any = None, **fields: Any):
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish}
    return {"id": "chatcmpl-1", "model": "m-1", "choices": [choice], **fields}


def call(index: Any, id: Any, name: str | None, arguments: Any, **fields: Any):
    entry = {"id": id, "function": {"name": name, "arguments": arguments}, **fields}
    return {"tool_calls": [entry if index is None else {"index": index, **entry}]}


def frames(*chunks: Any) -> bytes:
    texts = (c if isinstance(c, str) else orjson.dumps(c).decode() for c in chunks)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def decoded(stream: bytes, codec: OpenAIChatCodec = CODEC) -> list[Delta]:
    sse, decoder = SSEDecoder(), codec.decoder()
    events = [*sse.feed(stream), *sse.close()]
    return [
        *(delta for event in events for delta in decoder.feed(event)),
        *decoder.close(),
    ]


def built(deltas: list[Delta]) -> ResponseBuilder:
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    builder.begin_call()
    builder.feed(deltas)
    builder.end_call()
    return builder


def read(*chunks: Any, codec: OpenAIChatCodec = CODEC, end: bool = True):
    """What is built of a stream of these chunks, ended in order unless not `end`."""
    ending = (chunk(finish="stop"), DONE) if end else ()
    return built(decoded(frames(*chunks, *ending), codec))


def answered(message: dict[str, Any], finish: str | None = "stop", **fields: Any):
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "chatcmpl-1", "model": "m-1", "choices": [choice], **fields}
    return built(list(CODEC.decode(orjson.dumps(body))))


def output_texts(builder: ResponseBuilder) -> list[tuple[str, str]]:
    """Each item as its type and text."""
    return [(item["type"], words(item)) for item in builder.output]


def words(item: Item) -> str:
    if item["type"] == "function_call":
        return f"{item['name']}({item['arguments']})"
    parts = [*item.get("summary", ()), *item.get("content", ())]
    return "".join(part.get("text") or part.get("refusal") or "" for part in parts)


def encode(*items: Item, codec: OpenAIChatCodec = CODEC, **options: Any):
    return codec.encode(Request(model="m", items=items, issuer=ISSUER, **options))


def messages(*items: Item, codec: OpenAIChatCodec = CODEC, **options: Any):
    return encode(*items, codec=codec, **options)["messages"]


def function_call(call_id: str = "call_1", arguments: str = "{}", raw: Any = None):
    item = {
        "type": "function_call",
        "call_id": call_id,
        "name": "f",
        "arguments": arguments,
    }
    return {**item, "provider_data": {"issuer": ISSUER, "raw": raw}} if raw else item


def reasoning(raw: Any, issuer: Any = ISSUER) -> Item:
    return {
        "type": "reasoning",
        "summary": [],
        "provider_data": {"issuer": issuer, "raw": raw},
    }


def tool_call(call_id: str = "call_1", arguments: str = "{}", **fields: Any):
    function = {"name": "f", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function, **fields}
