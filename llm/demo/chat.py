"""The demo's Chat Completions API: request bodies in; chunks, or one completion, out.

Reasoning is sent as `reasoning_content`, as by hosts other than OpenAI.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from llm.demo.api_interface import Frame, Ids, first_half
from llm.demo.problem import Problem, stream_failure
from llm.demo.prompt import CallHistory, DemoPrompt, Message
from llm.demo.request_schemas import (
    COMMON,
    FUNCTION,
    NAMED_SCHEMA,
    OPTIONAL_COUNT,
    OPTIONAL_OBJECT,
    OPTIONAL_TEXT,
    PARTS,
    check,
    format_schema,
    functions_of,
    list_of_tools,
    message_of,
    prompt_of,
    schema_of,
    text_of,
)
from llm.demo.steps import CallTool, Say, Script, Step, Think
from llm.demo.words import pieces, words

_FUNCTION_CALL = {
    "type": "object",
    "required": ["id", "function"],
    "properties": {
        "id": {"type": "string", "minLength": 1},
        "function": {
            "type": "object",
            "required": ["name", "arguments"],
            "properties": {
                "name": {"type": "string"},
                "arguments": {"type": "string"},
            },
        },
    },
}
_MESSAGE = {
    "type": "object",
    "required": ["role"],
    "properties": {
        "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
        "content": {"anyOf": [OPTIONAL_TEXT, PARTS]},
        "tool_calls": {"type": ["array", "null"], "items": _FUNCTION_CALL},
        "tool_call_id": {"type": "string"},
    },
    "if": {"properties": {"role": {"const": "tool"}}},
    "then": {"required": ["content", "tool_call_id"]},
}
_FUNCTION_TOOL = {
    "required": ["function"],
    "properties": {
        "function": {"type": "object", "required": ["name"], "properties": FUNCTION}
    },
}
_JSON_SCHEMA_FORMAT = {
    "required": ["json_schema"],
    "properties": {"json_schema": {"type": "object", **NAMED_SCHEMA}},
}
_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["model", "messages"],
    "properties": {
        **COMMON,
        "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
        "n": {"enum": [1, None]},
        "stream_options": OPTIONAL_OBJECT,
        "tools": list_of_tools(_FUNCTION_TOOL),
        "max_completion_tokens": OPTIONAL_COUNT,
        "max_tokens": OPTIONAL_COUNT,
        "reasoning_effort": OPTIONAL_TEXT,
        "response_format": format_schema(_JSON_SCHEMA_FORMAT),
    },
}


class ChatWire:
    def __init__(self, body: dict[str, Any]) -> None:
        check(_BODY, body)
        self.model: str = body["model"]
        self.stream = bool(body.get("stream"))
        self.prompt = _parse_prompt(body)
        self._ids = Ids(body)
        options = body.get("stream_options") or {}
        self._includes_usage = bool(options.get("include_usage"))

    def frames(self, script: Script) -> Iterator[Frame]:
        if script.ending in ("error", "cut"):
            yield from first_half(self._frames(script), self._frames(script))
            if script.ending == "error":
                yield _frame({"error": stream_failure().error})
            return
        yield from self._frames(script)
        yield Frame(b"data: [DONE]\n\n")

    def response_body(self, script: Script) -> dict[str, Any]:
        if script.ending == "error":
            raise stream_failure()
        choice = {
            "index": 0,
            "message": self._message(script.steps),
            "logprobs": None,
            "finish_reason": _finish(script),
        }
        return {
            **self._head("chat.completion"),
            "choices": [choice],
            "usage": self._usage(script),
        }

    # Chunks

    def _frames(self, script: Script) -> Iterator[Frame]:
        yield self._chunk({"role": "assistant", "content": "", "refusal": None})
        calls = 0
        for step in script.steps:
            match step:
                case Think():
                    for word in words(_thought(step)):
                        yield self._chunk({"reasoning_content": word}, word=True)
                case Say():
                    for word in words(step.text):
                        yield self._chunk({"content": word}, word=True)
                case CallTool():
                    yield from self._call(calls, step)
                    calls += 1
        yield self._chunk({}, finish=_finish(script))
        if self._includes_usage:
            head = self._head("chat.completion.chunk")
            yield _frame({**head, "choices": [], "usage": self._usage(script)})

    def _call(self, index: int, step: CallTool) -> Iterator[Frame]:
        call = {"index": index, **self._tool_call(index, step), "type": "function"}
        call["function"] = {"name": step.name, "arguments": ""}
        yield self._chunk({"tool_calls": [call]})
        for word in pieces(step.arguments):
            piece = {"index": index, "function": {"arguments": word}}
            yield self._chunk({"tool_calls": [piece]}, word=True)

    def _chunk(
        self, delta: dict[str, Any], *, finish: str | None = None, word: bool = False
    ) -> Frame:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = {**self._head("chat.completion.chunk"), "choices": [choice]}
        if self._includes_usage:
            chunk["usage"] = None
        return _frame(chunk, word=word)

    # Objects

    def _message(self, steps: Sequence[Step]) -> dict[str, Any]:
        text = "".join(step.text for step in steps if isinstance(step, Say))
        thoughts = [_thought(step) for step in steps if isinstance(step, Think)]
        calls = [step for step in steps if isinstance(step, CallTool)]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": None if calls and not text else text,
            "refusal": None,
            "annotations": [],
        }
        if thoughts:
            message["reasoning_content"] = "".join(thoughts)
        if calls:
            numbered = enumerate(calls)
            message["tool_calls"] = [self._tool_call(i, call) for i, call in numbered]
        return message

    def _tool_call(self, index: int, step: CallTool) -> dict[str, Any]:
        return {
            "id": self._ids.make("call_", index),
            "type": "function",
            "function": {"name": step.name, "arguments": step.arguments},
        }

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self._ids.make("chatcmpl-"),
            "object": kind,
            "created": self._ids.created_at,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": None,
        }

    def _usage(self, script: Script) -> dict[str, Any]:
        read, written = self.prompt.size, script.size
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": script.reasoning_size,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


# Reading


def _parse_prompt(body: Mapping[str, Any]) -> DemoPrompt:
    messages, calls = _conversation(body["messages"])
    wanted = body.get("response_format") or {}
    return prompt_of(
        body,
        messages,
        calls,
        functions=[tool["function"] for tool in functions_of(body)],
        effort=body.get("reasoning_effort"),
        schema=schema_of(wanted, wanted.get("json_schema")),
        max_words=body.get("max_completion_tokens") or body.get("max_tokens"),
    )


def _conversation(
    raw_messages: Sequence[Mapping[str, Any]],
) -> tuple[list[Message], CallHistory]:
    messages, calls = [], CallHistory()
    for message in raw_messages:
        if message["role"] == "tool":
            if not calls.add_output(
                message["tool_call_id"], text_of(message["content"])
            ):
                raise _bad_messages(
                    "messages with role 'tool' must be a response to a preceding "
                    "message with 'tool_calls'."
                )
            continue
        _check_answered(calls)
        messages.append(_message(message))
        if message["role"] == "user":
            calls.start_turn()
        for call in message.get("tool_calls") or ():
            function = call["function"]
            calls.add_call(call["id"], function["name"], function["arguments"])
    _check_answered(calls)
    return messages, calls


def _check_answered(calls: CallHistory) -> None:
    if waiting := calls.unanswered_ids:
        raise _bad_messages(
            "An assistant message with 'tool_calls' must be followed by tool messages "
            "responding to each 'tool_call_id'. The following tool_call_ids did not "
            f"have response messages: {', '.join(waiting)}"
        )


def _message(message: Mapping[str, Any]) -> Message:
    content = message.get("content")
    if content is None and message["role"] != "assistant":
        raise _bad_messages("A message needs 'content'.")
    return message_of(message["role"], content, ("image_url", "file"))


def _bad_messages(message: str) -> Problem:
    return Problem(400, message, param="messages")


# Pieces


def _finish(script: Script) -> str:
    if script.ending == "length":
        return "length"
    calls = any(isinstance(step, CallTool) for step in script.steps)
    return "tool_calls" if calls else "stop"


def _thought(step: Think) -> str:
    return "\n\n".join(step.parts)


def _frame(chunk: dict[str, Any], *, word: bool = False) -> Frame:
    return Frame(b"data: %b\n\n" % orjson.dumps(chunk), word)
