"""Anthropic Messages: thinking with signatures, hosted search, `pause_turn`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.chaos.answers import Answer, Call, Part, Say, Search, Think, pieces
from tests.chaos.prompt import (
    Called,
    Entry,
    Output,
    Prompt,
    Text,
    Thought,
    entry_of_user,
    prompt_of,
)
from tests.chaos.prompt import Search as Searched

from .wire import Frame, event

STOP = {"stop": "end_turn", "calls": "tool_use", "pause": "pause_turn"}
USAGE = {"input_tokens": 5, "output_tokens": 7}


class AnthropicWire:
    name = "anthropic"

    def is_at(self, path: str) -> bool:
        return path.endswith("/messages")

    def read(self, path: str, body: Any) -> Prompt | None:
        entries = [e for message in body["messages"] for e in _entries(message)]
        return prompt_of(entries, streams=bool(body.get("stream")))

    def frames(self, answer: Answer, id: str) -> Iterator[Frame]:
        message = {"id": id, "type": "message", "role": "assistant", "content": []}
        message |= {"model": "chaos", "stop_reason": None, "usage": USAGE}
        yield _event("message_start", message=message)
        yield _event("ping")
        index = 0
        for part in answer.parts:
            for block, deltas in _blocks(part):
                yield from _item_frames(index, block, deltas)
                index += 1
        stop = {"stop_reason": STOP[answer.end], "stop_sequence": None}
        yield _event("message_delta", ends=True, delta=stop, usage=USAGE)
        yield _event("message_stop", ends=True)

    def error(self, status: int) -> Mapping[str, Any]:
        type = {429: "rate_limit_error", 529: "overloaded_error"}.get(
            status, "api_error" if status >= 500 else "invalid_request_error"
        )
        return {"type": "error", "error": {"type": type, "message": "Chaos."}}

    def error_frames(self) -> Sequence[Frame]:
        return [_event("error", error={"type": "api_error", "message": "Chaos."})]

    def unfinished(self) -> bytes:
        return _event("message_stop").data


def _entries(message: Mapping[str, Any]) -> Iterator[Entry]:
    content = message["content"]
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for block in content:
        match block["type"]:
            case "text" if message["role"] == "assistant":
                yield Text(block["text"])
            case "text":
                yield entry_of_user(block["text"])
            case "thinking":
                yield Thought(block["signature"])
            case "tool_use":
                yield Called(block["id"])
            case "tool_result":
                yield Output(block["tool_use_id"])
            case "server_tool_use":
                yield Searched(block["id"])


Deltas = list[dict[str, Any]]


def _blocks(part: Part) -> Iterator[tuple[dict[str, Any], Deltas]]:
    """Content blocks as they start, with the deltas that follow."""
    match part:
        case Think(text, proof):
            deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(text)]
            signed = {"type": "signature_delta", "signature": proof}
            block = {"type": "thinking", "thinking": "", "signature": ""}
            yield block, [*deltas, signed]
        case Say(text):
            deltas = [{"type": "text_delta", "text": p} for p in pieces(text)]
            yield {"type": "text", "text": ""}, deltas
        case Call(id, name, arguments):
            encoded = json.dumps(arguments)
            half = len(encoded) // 2
            cut = ("", encoded[:half], encoded[half:])
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in cut]
            yield {"type": "tool_use", "id": id, "name": name, "input": {}}, deltas
        case Search(id, query, url):
            encoded = json.dumps({"query": query})
            deltas = [{"type": "input_json_delta", "partial_json": encoded}]
            use = {"type": "server_tool_use", "id": id, "name": "web_search"}
            yield {**use, "input": {}}, deltas
            found = {"type": "web_search_result", "url": url, "title": query}
            result = {"type": "web_search_tool_result", "tool_use_id": id}
            yield {**result, "content": [{**found, "encrypted_content": id}]}, []


def _item_frames(index: int, block: dict[str, Any], deltas: Deltas) -> Iterator[Frame]:
    yield _event(
        "content_block_start", is_content=True, index=index, content_block=block
    )
    for delta in deltas:
        yield _event("content_block_delta", is_content=True, index=index, delta=delta)
    yield _event("content_block_stop", is_content=True, index=index)


def _event(
    type: str, *, is_content: bool = False, ends: bool = False, **fields: Any
) -> Frame:
    return Frame(
        event({"type": type, **fields}, type), is_content=is_content, ends=ends
    )
