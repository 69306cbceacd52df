"""Answers of providers with as many items, parts or sources as they can hold.

The events of each are those of one wire format, which its name begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson

MANY = 20_000  # of them in one event, which holds 250,000 values at most


def _frames(*events: Any) -> bytes:
    return b"".join(b"data: %b\n\n" % orjson.dumps(event) for event in events)


def _response(items: Iterable[Any]) -> bytes:
    response = {"id": "r", "status": "completed", "output": list(items)}
    return _frames({"type": "response.completed", "response": response})


def _call(number: int) -> Any:
    id = f"call_{number}"
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}


def _summaries() -> bytes:
    """One reasoning item whose summary alternates between two parts."""
    type = "response.reasoning_summary_text.delta"
    return _frames(
        *(
            {"type": type, "item_id": "rs", "summary_index": n % 2, "delta": "a"}
            for n in range(10 * MANY)
        ),
        {"type": "response.completed", "response": {"status": "completed"}},
    )


def _gemini(parts: list[Any], **candidate: Any) -> bytes:
    content = {"parts": parts, "role": "model"}
    return _frames(
        {"candidates": [{"content": content, "finishReason": "STOP", **candidate}]}
    )


def _sources() -> bytes:
    """Quotations that are all searched for in a long text."""
    segment = {"startIndex": 1, "endIndex": 2_000_000, "text": "é" * 20}
    support = {"segment": segment, "groundingChunkIndices": [0]}
    metadata = {
        "groundingChunks": [{"web": {"uri": "https://example.org"}}],
        "groundingSupports": [support] * MANY,
    }
    return _gemini([{"text": "éa" * 1_000_000}], groundingMetadata=metadata)


def _blocks() -> bytes:
    begin = {"type": "message_start", "message": {"id": "m", "model": "m"}}
    block = {"type": "thinking", "thinking": "a", "signature": "s"}
    return _frames(
        begin,
        *(
            event
            for n in range(5 * MANY)
            for event in (
                {"type": "content_block_start", "index": n, "content_block": block},
                {"type": "content_block_stop", "index": n},
            )
        ),
    )


def _citations() -> bytes:
    citation = {"type": "web_search_result_location", "url": "u", "cited_text": "c"}
    delta = {"type": "citations_delta", "citation": citation}
    piece = {"type": "content_block_delta", "index": 0, "delta": delta}
    block = {"type": "text", "text": "a"}
    return _frames(
        {"type": "content_block_start", "index": 0, "content_block": block},
        *[piece] * (5 * MANY),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    )


def _details() -> bytes:
    """Blocks of reasoning, each with an index of its own."""
    details = [{"type": "reasoning.text", "text": "a", "index": n} for n in range(MANY)]
    return _frames(
        {"choices": [{"delta": {"reasoning_details": details}}]},
        {"choices": [{"delta": {"content": "a"}, "finish_reason": "stop"}]},
    )


_PICTURE = {"inlineData": {"mimeType": "image/png", "data": "a"}}
ANSWERS: dict[str, Callable[[], bytes]] = {
    "responses-calls": lambda: _response(map(_call, range(MANY))),
    "responses-messages": lambda: _response([{"type": "message"}] * MANY),
    "responses-summaries": _summaries,
    "gemini-thoughts": lambda: _gemini(
        [{"text": "a", "thought": n % 2 > 0} for n in range(2 * MANY)]
    ),
    "gemini-signatures": lambda: _gemini(
        [_PICTURE, *[{"text": "", "thoughtSignature": "s"}] * (2 * MANY)]
    ),
    "gemini-sources": _sources,
    "anthropic-blocks": _blocks,
    "anthropic-citations": _citations,
    "openai_chat-details": _details,
}
