"""generateContent traffic for tests, and what our codec makes of it."""

from __future__ import annotations

from typing import Any

import orjson

from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.deltas import Delta
from llm.wire.items import Item
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import SSEDecoder

CODEC = GeminiCodec()
VERTEX = GeminiCodec(vertex=True)
ISSUER = {"provider": "gemini", "model": "gemini-3.8-flash", "route": "1:1"}
MODEL = ISSUER["model"]
SIGNED = {"thoughtSignature": "c2ln"}


def chunk(*parts: Any, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish:
        candidate["finishReason"] = finish
    for name in ("groundingMetadata", "urlContextMetadata", "citationMetadata"):
        if name in fields:
            candidate[name] = fields.pop(name)
    return {
        "candidates": [candidate],
        "modelVersion": "gemini-x",
        "responseId": "r1",
        **fields,
    }


def text(output_texts: str, **fields: Any) -> dict[str, Any]:
    return {"text": output_texts, **fields}


def thought(output_texts: str, **fields: Any) -> dict[str, Any]:
    return {"text": output_texts, "thought": True, **fields}


def call(name: str = "look", args: Any = None, id: str = "", **fields: Any):
    call_fields: dict[str, Any] = {"name": name}
    if args is not None:
        call_fields["args"] = args
    if id:
        call_fields["id"] = id
    return {"functionCall": call_fields, **fields}


def frames(*chunks: Any) -> bytes:
    texts = (c if isinstance(c, str) else orjson.dumps(c).decode() for c in chunks)
    return "".join(f"data: {text}\r\n\r\n" for text in texts).encode()


def decoded(stream: bytes) -> list[Delta]:
    sse, decoder = SSEDecoder(), CODEC.decoder()
    events = [*sse.feed(stream), *sse.close()]
    deltas = [delta for event in events for delta in decoder.feed(event)]
    return [*deltas, *decoder.close()]


def built(deltas: list[Delta]) -> ResponseBuilder:
    builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
    builder.begin_call()
    for delta in deltas:
        builder.feed([delta])
    builder.end_call()
    return builder


def read(*chunks: Any, finish: str | None = "STOP") -> ResponseBuilder:
    """What is built of a stream of these chunks, ended in order."""
    ending = (chunk(finish=finish),) if finish else ()
    return built(decoded(frames(*chunks, *ending)))


def output_texts(builder: ResponseBuilder) -> list[tuple[str, str]]:
    """Each item as its type and text."""
    return [(item["type"], words(item)) for item in builder.output]


def words(item: Item) -> str:
    if item["type"] == "function_call":
        return f"{item['name']}({item['arguments']})"
    parts = [*item.get("summary", ()), *item.get("content", ())]
    return "".join(part.get("text") or "" for part in parts)


def with_proofs(builder: ResponseBuilder, issuer: Any = ISSUER) -> list[Item]:
    """The items as they are stored."""
    proofs = builder.proofs
    return [
        {**item, "provider_data": {"issuer": issuer, "raw": proofs[item["id"]]}}
        if item["id"] in proofs
        else item
        for item in builder.output
    ]


def encode(*items: Item, codec: GeminiCodec = CODEC, **options: Any) -> dict[str, Any]:
    options = {"model": MODEL, "issuer": ISSUER, **options}
    return codec.encode(Request(items=items, **options))


def contents(*items: Item, **options: Any) -> list[dict[str, Any]]:
    return encode(*items, **options)["contents"]


def function_call(call_id: str = "call_1", arguments: str = "{}", raw: Any = None):
    item = {
        "type": "function_call",
        "call_id": call_id,
        "name": "look",
        "arguments": arguments,
    }
    return {**item, "provider_data": {"issuer": ISSUER, "raw": raw}} if raw else item
