"""Replies of a host of each wire format in the usual situations.

`canned(codec)` finds the one for a codec. A new wire format adds itself to `_FORMATS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

Answer = tuple[int, bytes]  # status and body


@dataclass(frozen=True, slots=True, kw_only=True)
class Canned:
    """A host that sends "Hello" in two pieces, with 9 input and 2 output tokens."""

    frames: Sequence[bytes]  # of the stream; the text is in `text_frames` of them
    text_frames: slice
    whole: bytes  # the same in one piece
    failure: bytes  # a frame: an overload error inside the stream
    bad_key: Answer
    rate_limit: Answer
    too_large: Answer
    down: Answer

    @property
    def stream(self) -> bytes:
        return b"".join(self.frames)

    @property
    def begun(self) -> bytes:
        """The stream up to the end of its text, without its end marker."""
        return b"".join(self.frames[: self.text_frames.stop])


def canned(codec: Any) -> Canned:
    for beginning, content_type in _FORMATS.items():
        if codec.name.startswith(beginning):
            return content_type
    raise LookupError(f"no canned answers of {codec.name!r}; add them to {__name__}")


def _json(value: Any) -> bytes:
    return orjson.dumps(value)


def _data(value: Any) -> bytes:
    return b"data: %b\n\n" % (value if isinstance(value, bytes) else _json(value))


def _event(value: Mapping[str, Any]) -> bytes:
    return b"event: %b\n%b" % (value["type"].encode(), _data(value))


# Chat Completions

_CHAT_USAGE = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _data({"id": "c1", "model": "m-1", "choices": [choice], "usage": None})


def _chat_error(message: str, code: str) -> bytes:
    return _json({"error": {"message": message, "type": "error", "code": code}})


_CHAT = Canned(
    frames=[
        _chunk({"role": "assistant", "content": ""}),
        _chunk({"content": "Hel"}),
        _chunk({"content": "lo"}),
        _chunk({}, "stop"),
        _data({"id": "c1", "model": "m-1", "choices": [], "usage": _CHAT_USAGE}),
        _data(b"[DONE]"),
    ],
    text_frames=slice(1, 3),
    whole=_json(
        {
            "id": "c1",
            "object": "chat.completion",
            "model": "m-1",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hello"},
                    "finish_reason": "stop",
                }
            ],
            "usage": _CHAT_USAGE,
        }
    ),
    failure=_data(_chat_error("The engine is overloaded.", "server_is_overloaded")),
    bad_key=(401, _chat_error("Incorrect API key provided.", "invalid_api_key")),
    rate_limit=(429, _chat_error("Slow down.", "rate_limit_exceeded")),
    too_large=(
        400,
        _chat_error("The maximum context length is 8.", "context_length_exceeded"),
    ),
    down=(503, _chat_error("Not now.", "unavailable")),
)

# Responses

_PART = {"type": "output_text", "text": "Hello", "annotations": []}
_MESSAGE = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [_PART],
}
_RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "model": "m-1",
    "status": "completed",
    "output": [_MESSAGE],
    "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
}
_BEGUN = {**_RESPONSE, "status": "in_progress", "output": [], "usage": None}
_IN_PART = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}


def _text_delta(text: str) -> bytes:
    return _event({"type": "response.output_text.delta", **_IN_PART, "delta": text})


_RESPONSES = Canned(
    frames=[
        _event({"type": "response.created", "response": _BEGUN}),
        _event(
            {
                "type": "response.output_item.added",
                "output_index": 0,
                "item": {**_MESSAGE, "status": "in_progress", "content": []},
            }
        ),
        _event(
            {
                "type": "response.content_part.added",
                **_IN_PART,
                "part": {**_PART, "text": ""},
            }
        ),
        _text_delta("Hel"),
        _text_delta("lo"),
        _event({"type": "response.output_text.done", **_IN_PART, "text": "Hello"}),
        _event({"type": "response.content_part.done", **_IN_PART, "part": _PART}),
        _event(
            {"type": "response.output_item.done", "output_index": 0, "item": _MESSAGE}
        ),
        _event({"type": "response.completed", "response": _RESPONSE}),
    ],
    text_frames=slice(3, 5),
    whole=_json(_RESPONSE),
    failure=_event(
        {"type": "error", "code": "server_is_overloaded", "message": "Overloaded."}
    ),
    bad_key=_CHAT.bad_key,
    rate_limit=_CHAT.rate_limit,
    too_large=_CHAT.too_large,
    down=_CHAT.down,
)

# Messages


def _anthropic_error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _block_delta(text: str) -> bytes:
    delta = {"type": "text_delta", "text": text}
    return _event({"type": "content_block_delta", "index": 0, "delta": delta})


_ANTHROPIC_MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m-1",
    "content": [{"type": "text", "text": "Hello"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "output_tokens": 2},
}
_ANTHROPIC = Canned(
    frames=[
        _event(
            {
                "type": "message_start",
                "message": {
                    **_ANTHROPIC_MESSAGE,
                    "content": [],
                    "stop_reason": None,
                    "usage": {"input_tokens": 9, "output_tokens": 1},
                },
            }
        ),
        _event(
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            }
        ),
        _block_delta("Hel"),
        _block_delta("lo"),
        _event({"type": "content_block_stop", "index": 0}),
        _event(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 2},
            }
        ),
        _event({"type": "message_stop"}),
    ],
    text_frames=slice(2, 4),
    whole=_json(_ANTHROPIC_MESSAGE),
    failure=_event(_anthropic_error("overloaded_error", "Overloaded")),
    bad_key=(401, _json(_anthropic_error("authentication_error", "invalid x-api-key"))),
    rate_limit=(429, _json(_anthropic_error("rate_limit_error", "Slow down."))),
    too_large=(
        400,
        _json(
            _anthropic_error(
                "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"
            )
        ),
    ),
    down=(529, _json(_anthropic_error("overloaded_error", "Overloaded"))),
)

# generateContent


def _candidate(text: str, **fields: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": [{"text": text}]}
    return {"content": content, "index": 0, **fields}


def _gemini_chunk(text: str, finish: str | None = None, **fields: Any) -> bytes:
    ended = {"finishReason": finish} if finish else {}
    chunk = {
        "candidates": [_candidate(text, **ended)],
        "modelVersion": "m-1",
        "responseId": "r1",
        **fields,
    }
    return b"data: %b\r\n\r\n" % _json(chunk)


def _gemini_error(code: int, status: str, message: str) -> bytes:
    return _json({"error": {"code": code, "status": status, "message": message}})


_GEMINI_USAGE = {
    "promptTokenCount": 9,
    "candidatesTokenCount": 2,
    "totalTokenCount": 11,
}
_GEMINI = Canned(
    frames=[
        _gemini_chunk("Hel"),
        _gemini_chunk("lo"),
        _gemini_chunk("", "STOP", usageMetadata=_GEMINI_USAGE),
    ],
    text_frames=slice(0, 2),
    whole=_json(
        {
            "candidates": [_candidate("Hello", finishReason="STOP")],
            "usageMetadata": _GEMINI_USAGE,
            "modelVersion": "m-1",
            "responseId": "r1",
        }
    ),
    failure=_data(_gemini_error(503, "UNAVAILABLE", "The model is overloaded.")),
    bad_key=(
        400,
        _gemini_error(
            400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."
        ),
    ),
    rate_limit=(429, _gemini_error(429, "RESOURCE_EXHAUSTED", "Slow down.")),
    too_large=(
        400,
        _gemini_error(
            400,
            "INVALID_ARGUMENT",
            "The input token count (9) exceeds the maximum number of tokens (8).",
        ),
    ),
    down=(503, _gemini_error(503, "UNAVAILABLE", "The model is overloaded.")),
)

#: By the beginning of a codec's name: a variant speaks as its original does.
_FORMATS = {
    "openai_chat": _CHAT,
    "openai_responses": _RESPONSES,
    "anthropic": _ANTHROPIC,
    "gemini": _GEMINI,
}
