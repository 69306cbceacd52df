"""Chat Completions: OpenAI's, and a host like DeepSeek that wants its thinking back.

The calls of DeepSeek's like are counted anew with every answer, as some hosts do, by
ids that few others take: `functions.look:0`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from llm.wire.items import Issuer

from .rules import (
    PLACES,
    Body,
    Mark,
    Refusal,
    Rule,
    digest,
    doubles,
    refusal,
    seal,
    wish,
)

_FIELDS = {
    "developer": {"content", "name"},
    "system": {"content", "name"},
    "user": {"content", "name"},
    "assistant": {"content", "refusal", "tool_calls", "name"},
    "tool": {"content", "tool_call_id"},
}
_PARTS = {"user": {"text", "image_url", "file", "input_audio"}}
_MAX_CALL_ID = 40  # characters


def answer(body: Body, issuer: Issuer) -> Refusal | bytes:
    if refused := refusal(RULES, body, issuer):
        return refused
    message, finish = _message(body, issuer)
    return b"".join(_stream(message, finish, issuer))


def assistant_content(body: Body) -> list[Any]:
    return [_compared(m) for m in body["messages"] if m["role"] == "assistant"]


def issued(stream: bytes) -> list[Any]:
    message: dict[str, Any] = {"role": "assistant"}
    for frame in stream.split(b"\n\n"):
        chunk = frame.removeprefix(b"data: ")
        if not chunk.startswith(b"{"):
            continue
        delta = orjson.loads(chunk)["choices"][0]["delta"]
        for name in ("content", "reasoning_content"):
            if name in delta:
                message[name] = message.get(name, "") + delta[name]
        for call in delta.get("tool_calls", ()):
            whole = {k: v for k, v in call.items() if k != "index"}
            message.setdefault("tool_calls", []).append(whole)
    return [_compared(message)]


def _compared(message: dict[str, Any]) -> dict[str, Any]:
    """Call ids go their own way: the same for a call and its output, and legal."""
    fields = {k: v for k, v in message.items() if v is not None}
    if calls := fields.get("tool_calls"):
        fields["tool_calls"] = [call["function"] for call in calls]
    return fields


# Answers


def _thinks_aloud(issuer: Issuer) -> bool:
    return issuer["provider"] == "deepseek"


def _marks(body: Body) -> Iterator[Mark]:
    for message in body["messages"]:
        if message["role"] == "user":
            yield "user", orjson.dumps(message["content"]).decode()
        elif message.get("tool_calls"):
            yield "calls", ""


def _message(body: Body, issuer: Issuer) -> tuple[dict[str, Any], str]:
    answer = digest(issuer, body["messages"])
    calls = [_call(answer, n, issuer) for n in range(len(PLACES))]
    message: dict[str, Any] = {}
    if _thinks_aloud(issuer):
        message["reasoning_content"] = f"Thinking {seal(issuer, answer)}"
    match wish(list(_marks(body))):
        case "tools":
            return {**message, "tool_calls": calls}, "tool_calls"
        case "cut":
            calls[1]["function"]["arguments"] = '{"at": "so'
            return {**message, "tool_calls": calls}, "length"
        case "halt":
            calls[0]["function"]["arguments"] = '{"at": "no'
            return {**message, "tool_calls": calls[:1]}, "length"
        case "think":
            return message, "length"
        case "refuse" if not _thinks_aloud(issuer):
            return {**message, "refusal": "I cannot."}, "stop"
    return {**message, "content": f"Said {answer}."}, "stop"


def _call(answer: str, number: int, issuer: Issuer) -> dict[str, Any]:
    counted = _thinks_aloud(issuer)
    id = f"functions.look:{number}" if counted else f"call_{digest(answer, number)}"
    arguments = orjson.dumps({"at": PLACES[number]}).decode()
    function = {"name": "look", "arguments": arguments}
    return {"index": number, "id": id, "type": "function", "function": function}


def _stream(message: dict[str, Any], finish: str, issuer: Issuer) -> Iterator[bytes]:
    for name in ("reasoning_content", "content", "refusal"):
        if text := message.get(name):
            yield _chunk({name: text[:4]}, issuer)
            yield _chunk({name: text[4:]}, issuer)
    for call in message.get("tool_calls", ()):
        yield _chunk({"tool_calls": [call]}, issuer)
    yield _chunk({}, issuer, finish)
    yield b"data: [DONE]\n\n"


def _chunk(delta: dict[str, Any], issuer: Issuer, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1}
    chunk = {**head, "model": issuer["model"], "choices": [choice]}
    return b"data: %b\n\n" % orjson.dumps(chunk)


# Rules


def _wrong_roles(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    unknown = {"developer"} if _thinks_aloud(issuer) else set()
    for number, message in enumerate(body["messages"]):
        if message["role"] not in _FIELDS.keys() - unknown:
            yield {"number": number, "role": message["role"]}


def _unknown_fields(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    echoed = {"reasoning_content"} if _thinks_aloud(issuer) else set()
    for number, message in enumerate(body["messages"]):
        legal = _FIELDS[message["role"]] | {"role"}
        if message["role"] == "assistant":
            legal |= echoed
        for name in message.keys() - legal:
            yield {"path": f"messages[{number}].{name}"}


def _wrong_content(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, message in enumerate(body["messages"]):
        content, role = message.get("content"), message["role"]
        if isinstance(content, list):
            kinds = {part["type"] for part in content}
            wrong = not content or kinds - _PARTS.get(role, {"text"})
        else:
            wrong = not isinstance(content, str) and not message.get("tool_calls")
        if wrong:
            yield {"number": number}


def _ids(message: dict[str, Any]) -> list[str]:
    return [call["id"] for call in message.get("tool_calls") or ()]


def _long_ids(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, message in enumerate(body["messages"]):
        for index, id in enumerate(_ids(message)):
            if len(id) > _MAX_CALL_ID:
                at = f"messages[{number}].tool_calls[{index}].id"
                yield {"path": at, "length": len(id)}


def _rounds(body: Body) -> Iterator[tuple[list[str], list[str]]]:
    """The calls of each message, and the outputs that stand right behind them."""
    calls: list[str] = []
    outputs: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            outputs.append(message["tool_call_id"])
            continue
        yield calls, outputs
        calls, outputs = _ids(message), []
    yield calls, outputs


def _unanswered(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for calls, outputs in _rounds(body):
        if missing := [id for id in calls if id not in outputs]:
            yield {"ids": ", ".join(missing)}


def _uncalled(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for calls, outputs in _rounds(body):
        if set(outputs) - set(calls):
            yield {}


def _same_ids(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for calls, outputs in _rounds(body):
        yield from ({"id": id} for id in [*doubles(calls), *doubles(outputs)])


def _out_of_order(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for calls, outputs in _rounds(body):
        if calls != outputs:
            yield {}


def _bad_arguments(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, message in enumerate(body["messages"]):
        for call in message.get("tool_calls") or ():
            try:
                orjson.loads(call["function"]["arguments"])
            except orjson.JSONDecodeError:
                yield {"number": number}


def _thoughtless(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    """As users of its fourth generation report; an empty one will do."""
    if not _thinks_aloud(issuer) or body.get("thinking") == {"type": "disabled"}:
        return
    for message in body["messages"]:
        if message["role"] == "assistant" and "reasoning_content" not in message:
            yield {}


RULES = [
    Rule("Invalid value: '{role}' at 'messages[{number}].role'.", _wrong_roles),
    Rule("Unknown parameter: '{path}'.", _unknown_fields),
    Rule("Invalid value for 'content' at 'messages[{number}]'.", _wrong_content),
    Rule(
        "Invalid '{path}': string too long. Expected a string with maximum length 40,"
        " but got a string with length {length} instead.",
        _long_ids,
    ),
    Rule(
        "An assistant message with 'tool_calls' must be followed by tool messages"
        " responding to each 'tool_call_id'. The following tool_call_ids did not have"
        " response messages: {ids}",
        _unanswered,
    ),
    Rule(
        "Invalid parameter: messages with role 'tool' must be a response to a"
        " preceeding message with 'tool_calls'.",
        _uncalled,
    ),
    Rule("Duplicate value for 'tool_call_id' of '{id}'.", _same_ids),
    Rule("Tool messages must be in the order of their calls.", _out_of_order),
    Rule(
        "Invalid JSON in the arguments of a call of 'messages[{number}]'.",
        _bad_arguments,
    ),
    Rule(
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        _thoughtless,
    ),
]
