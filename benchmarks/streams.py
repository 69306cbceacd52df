"""Synthetic answers in each wire format, one frame per chunk of text.

Sizes are those of real streams: one short word per chunk, in a chat completion chunk of
some 250 bytes. No recording is needed, and any length can be generated. Recorded
streams are read from RECORDINGS_DIR, if set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

WORDS = ("The", " quick", " brown", " fox", " jumps", " over", " lazy", " dogs", ".\n")

Frames = Iterator[bytes]


def word(number: int) -> str:
    return WORDS[number % len(WORDS)]


def openai_chat(chunks: int) -> Frames:
    yield _data(_chat({"role": "assistant", "content": ""}))
    for number in range(chunks):
        yield _data(_chat({"content": word(number)}))
    yield _data(_chat({}, finish_reason="stop"))
    usage = {"prompt_tokens": 9, "completion_tokens": chunks}
    usage["total_tokens"] = 9 + chunks
    yield _data({**_chat({}), "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def openai_chat_call(number: int) -> Frames:
    """A call of the tool `add`, its arguments in pieces."""
    call = {"index": 0, "id": f"call_{number}", "type": "function"}
    named = {**call, "function": {"name": "add", "arguments": ""}}
    yield _data(_chat({"role": "assistant", "content": None, "tool_calls": [named]}))
    for piece in ('{"a"', f": {number}, ", '"b": 2}'):
        part = {"index": 0, "function": {"arguments": piece}}
        yield _data(_chat({"tool_calls": [part]}))
    yield _data(_chat({}, finish_reason="tool_calls"))
    yield b"data: [DONE]\n\n"


def openai_responses(chunks: int) -> Frames:
    text = "".join(word(number) for number in range(chunks))
    begun = _message("in_progress")
    at = {"item_id": begun["id"], "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response("in_progress", [])},
        {"type": "response.in_progress", "response": _response("in_progress", [])},
        {"type": "response.output_item.added", "output_index": 0, "item": begun},
        {"type": "response.content_part.added", **at, "part": _part("")},
    ]
    for number in range(chunks):
        delta = {"delta": word(number), "logprobs": [], "obfuscation": "Zk3fQw9a"}
        events.append({"type": "response.output_text.delta", **at, **delta})
    done = _message("completed", text)
    usage = _response_usage(chunks)
    events += [
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": _part(text)},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {
            "type": "response.completed",
            "response": {**_response("completed", [done]), "usage": usage},
        },
    ]
    for number, event in enumerate(events):
        yield _named({**event, "sequence_number": number})


def anthropic(chunks: int) -> Frames:
    usage = {"input_tokens": 9, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant"}
    message["content"] = []
    message |= {"model": "claude-bench", "stop_reason": None, "usage": usage}
    block = {"type": "text", "text": ""}
    yield _named({"type": "message_start", "message": message})
    yield _named({"type": "content_block_start", "index": 0, "content_block": block})
    for number in range(chunks):
        delta = {"type": "text_delta", "text": word(number)}
        yield _named({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _named({"type": "content_block_stop", "index": 0})
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    yield _named(
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": chunks}}
    )
    yield _named({"type": "message_stop"})


def gemini(chunks: int) -> Frames:
    for number in range(chunks):
        content = {"parts": [{"text": word(number)}], "role": "model"}
        candidate: dict[str, Any] = {"content": content, "index": 0}
        if number == chunks - 1:
            candidate["finishReason"] = "STOP"
        usage = {"promptTokenCount": 9, "candidatesTokenCount": number + 1}
        usage["totalTokenCount"] = number + 10
        yield _data(
            {
                "candidates": [candidate],
                "usageMetadata": usage,
                "modelVersion": "gemini-bench",
                "responseId": "bench",
            }
        )


#: By the name of the codec that reads them.
STREAMS: dict[str, Callable[[int], Frames]] = {
    "openai_chat": openai_chat,
    "openai_responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
}


#: How recordings call what a codec reads.
_APIS = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "messages": "anthropic",
    "generateContent": "gemini",
}


def recorded() -> dict[str, list[bytes]]:
    """The longest recorded stream of plain text in each wire format, frame by frame.

    {} where RECORDINGS_DIR is not set.
    """
    from llm.management.commands.replay_recordings import body_of, recordings

    folder = os.environ.get("RECORDINGS_DIR")
    found: dict[str, list[bytes]] = {}
    for recording in recordings(Path(folder)) if folder else ():
        expected = recording["expected"]
        name = _APIS.get(recording["api"])
        if not name or not recording["stream"] or expected["outcome"] != "completed":
            continue
        if expected.get("tool_calls") or not expected.get("text"):
            continue
        frames = re.findall(rb"(?s).+?(?:\r?\n){2}", body_of(recording))
        if len(frames) > len(found.get(name, ())):
            found[name] = frames
    return found


def _data(payload: dict[str, Any]) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(payload)


def _named(event: dict[str, Any]) -> bytes:
    return b"event: %b\n%b" % (event["type"].encode(), _data(event))


def _chat(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None}
    return {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": "bench",
        "service_tier": "default",
        "system_fingerprint": "fp_560af6e559",
        "choices": [{**choice, "finish_reason": finish_reason}],
    }


def _response(status: str, output: list[Any]) -> dict[str, Any]:
    return {
        "id": "resp_bench",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "bench",
        "output": output,
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
    }


def _response_usage(chunks: int) -> dict[str, Any]:
    return {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": chunks,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 9 + chunks,
    }


def _message(status: str, text: str | None = None) -> dict[str, Any]:
    content = [] if text is None else [_part(text)]
    head = {"type": "message", "id": "msg_bench", "role": "assistant"}
    return {**head, "status": status, "content": content}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
