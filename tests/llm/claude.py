"""Messages traffic for tests, what our codec makes of it, and what the SDK takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from anthropic.types.beta.message_create_params import (
    MessageCreateParams as BetaMessageCreateParams,
)
from anthropic.types.message_create_params import MessageCreateParams
from pydantic import ConfigDict, TypeAdapter

from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.deltas import Delta
from llm.wire.items import Issuer, Item
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from llm.wire.sse import SSEDecoder

CODEC = AnthropicCodec()
OLD_VERSION = AnthropicCodec(name="old", version="2023-06-01")
NEW, OLD = "claude-sonnet-5-5", "claude-haiku-4-5-20251001"
ISSUER: Issuer = {"provider": "anthropic", "model": NEW, "route": "1:1"}
OTHER: Issuer = {**ISSUER, "route": "1:2"}

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5-20261001",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "cmVk"}
TEXT = {"type": "text", "text": "Hello."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "it"}}
SEARCH = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "cats"},
}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [
        {
            "type": "web_search_result",
            "url": "https://cats.test/",
            "title": "Cats",
            "encrypted_content": "ZW5j",
        }
    ],
}

# A list, as pydantic takes no config beside a bare TypedDict.
SDK = TypeAdapter(list[MessageCreateParams], config=ConfigDict(extra="forbid"))
BETA_SDK = TypeAdapter(list[BetaMessageCreateParams])


# Answers


def begun(index: int, block: dict[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    delta = {"type": kind, **fields}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stopped(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None = "end_turn", usage: Any = None, **fields: Any):
    delta = {"stop_reason": reason, "stop_sequence": None, **fields}
    return {"type": "message_delta", "delta": delta, "usage": usage or {}}


def streamed(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of whole blocks, in pieces as they come."""
    return [
        event for index, block in enumerate(blocks) for event in _block(index, block)
    ]


def _block(index: int, block: dict[str, Any]) -> Iterable[dict[str, Any]]:
    match block["type"]:
        case "text":
            yield begun(index, {"type": "text", "text": ""})
            for citation in block.get("citations", ()):
                yield piece(index, "citations_delta", citation=citation)
            for letter in block["text"]:
                yield piece(index, "text_delta", text=letter)
        case "thinking":
            yield begun(index, {"type": "thinking", "thinking": "", "signature": ""})
            for letter in block["thinking"]:
                yield piece(index, "thinking_delta", thinking=letter)
            yield piece(index, "signature_delta", signature=block["signature"])
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            yield begun(index, {**block, "input": {}})
            text = orjson.dumps(block["input"]).decode() if block["input"] else ""
            for part in ("", text[:4], text[4:]):
                yield piece(index, "input_json_delta", partial_json=part)
        case _:
            yield begun(index, block)
    yield stopped(index)


def frames(*events: Any) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: ".encode() + orjson.dumps(event) + b"  \n\n"
        for event in events
    )


def decoded_deltas(data: bytes) -> list[Delta]:
    sse, decoder = SSEDecoder(), CODEC.decoder()
    events = [*sse.feed(data), *sse.close()]
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


def read(*events: Any, reason: str | None = "end_turn", **fields: Any):
    """What is built of a stream of these events that ends in order."""
    return built(decoded_deltas(frames(START, *events, ended(reason, **fields), STOP)))


def answered(*content: Any, reason: str = "end_turn", **fields: Any):
    """What is built of an answer that did not stream."""
    body = {**START["message"], "content": content, "stop_reason": reason, **fields}
    return built(list(CODEC.decode(orjson.dumps(body))))


def stored_items(builder: ResponseBuilder, issuer: Issuer = ISSUER) -> list[Item]:
    """The items as they are stored: with their proofs."""
    return [
        issued(item, builder.proofs[item["id"]], issuer)
        if item["id"] in builder.proofs
        else item
        for item in builder.output
    ]


# Requests


def issued(item: Item, raw: Any, issuer: Issuer = ISSUER) -> Item:
    return {**item, "provider_data": {"issuer": issuer, "raw": raw}}


def encode(*items: Item, codec: AnthropicCodec = CODEC, **fields: Any):
    """The body, after the SDK has found it valid."""
    options = {"model": NEW, "issuer": ISSUER, **fields}
    body = codec.encode(Request(items=items, **options))
    # The SDK speaks the version that has no sampling any more.
    removed = {"temperature", "top_p"} if codec is OLD_VERSION else set()
    validated({name: body[name] for name in body.keys() - removed})
    return body


def validated(body: dict[str, Any], sdk: TypeAdapter = SDK) -> None:
    [valid] = sdk.validate_python([orjson.loads(orjson.dumps(body))])
    for message in valid["messages"]:
        if not isinstance(message["content"], str):
            list(message["content"])  # an iterable is validated as it is read
    for name in ("system", "tools"):
        list(valid.get(name, ()))


def messages(*items: Item, **fields: Any) -> list[tuple[str, list[Any]]]:
    """Each message as its role and its blocks, without marks of the cache."""
    body = encode(*items, **fields)
    return [(m["role"], [bare(b) for b in m["content"]]) for m in body["messages"]]


def bare(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "cache_control"}


def call(call_id: str = "toolu_1", arguments: str = '{"at": "it"}', name: str = "look"):
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}
