"""Chat Completions as a host speaks it that streams its reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.chaos.answers import Answer, Call, Part, Say, Think, pieces
from tests.chaos.prompt import (
    Called,
    Entry,
    Output,
    Prompt,
    Text,
    entry_of_user,
    prompt_of,
)

from .wire import Frame, event, text_of

DONE = b"data: [DONE]\n\n"


class ChatWire:
    name = "chat"

    def is_at(self, path: str) -> bool:
        return path.endswith("/chat/completions")

    def read(self, path: str, body: Any) -> Prompt | None:
        entries = [e for message in body["messages"] for e in _entries(message)]
        return prompt_of(entries, streams=bool(body.get("stream")))

    def frames(self, answer: Answer, id: str) -> Iterator[Frame]:
        yield _chunk(id, {"role": "assistant", "content": ""})
        calls = [part for part in answer.parts if isinstance(part, Call)]
        for part in answer.parts:
            yield from _part(id, part, calls)
        finish = "tool_calls" if calls else "stop"
        yield _chunk(id, {}, finish=finish, ends=True)
        usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
        yield Frame(event({"id": id, "choices": [], "usage": usage}), ends=True)
        yield Frame(DONE, ends=True)

    def error(self, status: int) -> Mapping[str, Any]:
        return {"error": {"message": "Chaos.", "type": "chaos", "code": None}}

    def error_frames(self) -> Sequence[Frame]:
        return [Frame(event({"error": {"message": "Chaos.", "type": "server_error"}}))]

    def unfinished(self) -> bytes:
        return DONE


def _entries(message: Mapping[str, Any]) -> Iterator[Entry]:
    match message["role"]:
        case "user":
            yield entry_of_user(text_of(message["content"]))
        case "assistant":
            if text := text_of(message.get("content")):
                yield Text(text)
            for call in message.get("tool_calls") or ():
                yield Called(call["id"])
        case "tool":
            yield Output(message["tool_call_id"])


def _part(id: str, part: Part, calls: Sequence[Call]) -> Iterator[Frame]:
    match part:
        case Think(text):
            for piece in pieces(text):
                yield _chunk(id, {"reasoning_content": piece}, is_content=True)
        case Say(text):
            for piece in pieces(text):
                yield _chunk(id, {"content": piece}, is_content=True)
        case Call():
            index = calls.index(part)
            arguments = json.dumps(part.arguments)
            half = len(arguments) // 2
            begun = {"name": part.name, "arguments": arguments[:half]}
            first = {"index": index, "id": part.id, "type": "function"}
            yield _chunk(
                id, {"tool_calls": [{**first, "function": begun}]}, is_content=True
            )
            rest = {"index": index, "function": {"arguments": arguments[half:]}}
            yield _chunk(id, {"tool_calls": [rest]}, is_content=True)


def _chunk(
    id: str,
    delta: Mapping[str, Any],
    *,
    finish: str | None = None,
    is_content: bool = False,
    ends: bool = False,
) -> Frame:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": id, "object": "chat.completion.chunk", "model": "chaos"}
    return Frame(
        event({**chunk, "choices": [choice]}), is_content=is_content, ends=ends
    )
