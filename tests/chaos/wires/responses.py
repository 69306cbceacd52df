"""OpenAI Responses, stateless: reasoning comes back encrypted."""

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

from .wire import Frame, event, text_of

Fields = dict[str, Any]


class ResponsesWire:
    name = "responses"

    def is_at(self, path: str) -> bool:
        return path.endswith("/responses")

    def read(self, path: str, body: Any) -> Prompt | None:
        entries = [e for item in body["input"] for e in _entries(item)]
        return prompt_of(entries, streams=bool(body.get("stream")))

    def frames(self, answer: Answer, id: str) -> Iterator[Frame]:
        response = {"id": id, "object": "response", "model": "chaos", "output": []}
        yield _event("response.created", response={**response, "status": "in_progress"})
        output: list[Fields] = []
        for index, part in enumerate(answer.parts):
            item = _item(part, f"{id}_{index}")
            yield from _item_frames(item, part, index)
            output.append(item)
        usage = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
        whole = {**response, "status": "completed", "output": output, "usage": usage}
        yield _event("response.completed", ends=True, response=whole)

    def error(self, status: int) -> Mapping[str, Any]:
        return {"error": {"message": "Chaos.", "type": "chaos", "code": None}}

    def error_frames(self) -> Sequence[Frame]:
        error = {"type": "server_error", "code": "server_error", "message": "Chaos."}
        failed = {"id": "r", "status": "failed", "error": error, "output": []}
        return [
            _event("error", error=error),
            _event("response.failed", response=failed),
        ]

    def unfinished(self) -> bytes:
        return b""


def _entries(item: Mapping[str, Any]) -> Iterator[Entry]:
    match item.get("type", "message"):
        case "message" if item["role"] == "assistant":
            yield Text(text_of(item["content"]))
        case "message" if item["role"] == "user":
            yield entry_of_user(text_of(item["content"]))
        case "reasoning":
            yield Thought(item.get("encrypted_content") or "")
        case "function_call":
            yield Called(item["call_id"])
        case "function_call_output":
            yield Output(item["call_id"])
        case "web_search_call":
            yield Searched(item["id"])


def _item(part: Part, id: str) -> Fields:
    match part:
        case Think(text, proof):
            summary = [{"type": "summary_text", "text": text}]
            return {
                "type": "reasoning",
                "id": f"rs_{id}",
                "summary": summary,
                "encrypted_content": proof,
            }
        case Say(text):
            content = [{"type": "output_text", "text": text, "annotations": []}]
            return {
                "type": "message",
                "id": f"msg_{id}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        case Call(call_id, name, arguments):
            return {
                "type": "function_call",
                "id": f"fc_{id}",
                "call_id": call_id,
                "name": name,
                "arguments": json.dumps(arguments),
                "status": "completed",
            }
        case Search(search_id, query, url):
            sources = [{"type": "url", "url": url}]
            return {
                "type": "web_search_call",
                "id": search_id,
                "status": "completed",
                "action": {"type": "search", "query": query, "sources": sources},
            }


def _item_frames(item: Fields, part: Part, index: int) -> Iterator[Frame]:
    at = {"output_index": index, "item_id": item["id"]}
    begun = {**item, "status": "in_progress"}
    for field, empty in (("content", []), ("summary", []), ("arguments", "")):
        if field in begun:
            begun[field] = empty
    yield _event(
        "response.output_item.added", is_content=True, output_index=index, item=begun
    )
    match part:
        case Think(text):
            name = "response.reasoning_summary_text.delta"
            for piece in pieces(text):
                yield _event(name, is_content=True, **at, summary_index=0, delta=piece)
        case Say(text):
            name = "response.output_text.delta"
            for piece in pieces(text):
                yield _event(name, is_content=True, **at, content_index=0, delta=piece)
        case Call():
            name = "response.function_call_arguments.delta"
            yield _event(name, is_content=True, **at, delta=item["arguments"])
    yield _event(
        "response.output_item.done", is_content=True, output_index=index, item=item
    )


def _event(
    type: str, *, is_content: bool = False, ends: bool = False, **fields: Any
) -> Frame:
    return Frame(
        event({"type": type, **fields}, type), is_content=is_content, ends=ends
    )
