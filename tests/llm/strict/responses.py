"""The Responses API with the rules of OpenAI and xAI, without storage.

An item's id encodes its issuer, answer and position: `fc_<issuer><answer>_1`.
Each answer begins with its reasoning, at place 0.
"""

from __future__ import annotations

import re
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
    event,
    refusal,
    seal,
    wish,
)

_USER_PARTS = frozenset({"input_text", "input_image", "input_file"})
_PARTS = {
    "user": _USER_PARTS,
    "system": _USER_PARTS,
    "developer": _USER_PARTS,
    "assistant": frozenset({"output_text", "refusal"}),
}
#: Fields of an item by its type.
_FIELDS = {
    "message": {"id", "role", "content", "status", "phase"},
    "reasoning": {"id", "summary", "content", "encrypted_content", "status"},
    "function_call": {"id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"id", "call_id", "output", "status"},
    "custom_tool_call": {"id", "call_id", "name", "input", "status"},
    "web_search_call": {"id", "action", "status"},
    "computer_call": {"id", "call_id", "action", "pending_safety_checks", "status"},
    "computer_call_output": {"id", "call_id", "output", "acknowledged_safety_checks"},
}
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
    "computer_call": "cu",
    "computer_call_output": "cuo",
}
_PLACE = re.compile(r"[a-z]+_(\w+)_(\d+)")
_MAX_CALL_ID = 64  # characters


def answer(body: Body, issuer: Issuer) -> Refusal | bytes:
    if refused := refusal(RULES, body, issuer):
        return refused
    items, status = _output(body, issuer)
    return b"".join(_stream(items, status, issuer))


def assistant_content(body: Body) -> list[Any]:
    return list(body["input"])


def issued(stream: bytes) -> list[Any]:
    """What of an answer is to come back."""
    last = orjson.loads(stream.rpartition(b"data: ")[2])
    return list(last["response"]["output"])


# Answers


def _marks(body: Body) -> Iterator[Mark]:
    last = ""
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "message" and item["role"] == "user":
            yield "user", orjson.dumps(item["content"]).decode()
        elif kind in ("function_call", "computer_call") and kind != last:
            yield "calls", ""
        last = kind


def _output(body: Body, issuer: Issuer) -> tuple[list[dict[str, Any]], str]:
    answer = digest(issuer) + digest(body["input"])
    summary = [{"type": "summary_text", "text": f"Thinking about {answer}."}]
    items: list[dict[str, Any]] = [
        {
            "type": "reasoning",
            "summary": summary,
            "encrypted_content": seal(issuer, f"rs_{answer}_0", summary),
        }
    ]
    status = "completed"
    match wish(list(_marks(body))):
        case "tools":
            items += [_call(answer, index) for index in PLACES]
        case "screen":
            items.append(_action(answer))
        case "cut":
            items += [_call(answer, index) for index in PLACES]
            items[-1] |= {"arguments": '{"at": "so', "status": "incomplete"}
            status = "incomplete"
        case "halt":
            cut = {"arguments": '{"at": "no', "status": "incomplete"}
            items += [_call(answer, "north") | cut]
            status = "incomplete"
        case "think":
            status = "incomplete"
        case "refuse":
            items.append(_message({"type": "refusal", "refusal": "I cannot."}))
        case _:
            if issuer["provider"] == "xai":
                items += _receipts(answer)
            text = {"type": "output_text", "text": f"Said {answer}.", "annotations": []}
            items.append(_message(text))
    named = [
        {**item, "id": f"{_PREFIXES[item['type']]}_{answer}_{index}"}
        for index, item in enumerate(items)
    ]
    return named, status


def _call(answer: str, city: str) -> dict[str, Any]:
    return {
        "type": "function_call",
        "status": "completed",
        "call_id": f"call_{digest(answer, city)}",
        "name": "look",
        "arguments": orjson.dumps({"at": city}).decode(),
    }


def _action(answer: str) -> dict[str, Any]:
    return {
        "type": "computer_call",
        "status": "completed",
        "call_id": f"call_{digest(answer)}",
        "action": {"type": "screenshot"},
        "pending_safety_checks": [],
    }


def _message(part: dict[str, Any]) -> dict[str, Any]:
    item = {"type": "message", "role": "assistant", "status": "completed"}
    return {**item, "content": [part]}


def _receipts(answer: str) -> list[dict[str, Any]]:
    """Of tools that xAI has run itself; the second only looks like a call of ours."""
    action = {"type": "search", "query": "news", "sources": []}
    call = {"call_id": f"xs_call_{answer}", "name": "x_keyword_search", "input": "{}"}
    return [
        {"type": "web_search_call", "status": "completed", "action": action},
        {"type": "custom_tool_call", "status": "completed", **call},
    ]


def _stream(items: list[Any], status: str, issuer: Issuer) -> Iterator[bytes]:
    response = {"id": "resp_1", "model": issuer["model"], "output": []}
    yield event({"type": "response.created", "response": response})
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item["id"]}
        # The proof in `added` is never the final one.
        early = {"encrypted_content": "early", "status": "in_progress"}
        begun = {**item, **early} if item["type"] == "reasoning" else dict(item)
        begun |= {name: [] for name in ("content", "summary") if name in begun}
        begun |= {"arguments": ""} if "arguments" in begun else {}
        yield event({"type": "response.output_item.added", **at, "item": begun})
        match item:
            case {"arguments": arguments}:
                kind = "response.function_call_arguments.delta"
                yield event({"type": kind, **at, "delta": arguments})
            case {"content": [{"text": text}]}:
                kind, at = "response.output_text.delta", {**at, "content_index": 0}
                for piece in (text[:4], text[4:]):
                    yield event({"type": kind, **at, "delta": piece})
            case {"summary": [{"text": text}]}:
                kind, at = "response.reasoning_summary_text.delta", {**at}
                yield event({"type": kind, **at, "summary_index": 0, "delta": text})
        yield event({"type": "response.output_item.done", **at, "item": item})
    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    ended = {**response, "status": status, "output": items}
    ended |= cut if status == "incomplete" else {}
    yield event({"type": f"response.{status}", "response": ended})


# Rules


def _items(body: Body) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for number, item in enumerate(body["input"]):
        yield number, item.get("type", "message"), item


def _unknown_fields(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, kind, item in _items(body):
        for name in item.keys() - _FIELDS.get(kind, set()) - {"type"}:
            yield {"path": f"input[{number}].{name}"}


def _wrong_roles(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, kind, item in _items(body):
        unknown = {"developer"} if issuer["provider"] == "xai" else set()
        if kind == "message" and item["role"] not in _PARTS.keys() - unknown:
            yield {"path": f"input[{number}]", "value": item["role"]}


def _wrong_parts(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, kind, item in _items(body):
        parts = item.get("content") if kind == "message" else item.get("output")
        legal = _PARTS.get(item.get("role", ""), _USER_PARTS)
        for part in parts if isinstance(parts, list) and kind != "reasoning" else ():
            if part["type"] not in legal:
                yield {"path": f"input[{number}]", "value": part["type"]}


def _foreign_prefixes(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, kind, item in _items(body):
        prefix = _PREFIXES[kind]
        if "id" in item and not item["id"].startswith(f"{prefix}_"):
            yield {"number": number, "id": item["id"], "prefix": prefix}


def _unstored(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for _, _, item in _items(body):
        if "id" in item and not _answer_of(item).startswith(digest(issuer)):
            yield {"id": item["id"]}


def _without_id(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, kind, item in _items(body):
        needed = ("reasoning", "web_search_call", "computer_call")
        if kind in needed and "id" not in item:
            yield {"path": f"input[{number}].id"}


def _long_call_ids(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, _, item in _items(body):
        if len(call_id := item.get("call_id", "call")) > _MAX_CALL_ID:
            yield {"number": number, "length": len(call_id)}


def _empty_call_ids(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, _, item in _items(body):
        if item.get("call_id") == "":
            yield {"number": number}


def _same_ids(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    yield from ({"id": id} for id in doubles(_values(body, "id")))


def _same_calls(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    calls = _values(body, "call_id", "function_call")
    outputs = _values(body, "call_id", "function_call_output")
    yield from ({"id": id} for id in [*doubles(calls), *doubles(outputs)])


def _values(body: Body, field: str, *kinds: str) -> Iterator[str]:
    for _, kind, item in _items(body):
        if field in item and (not kinds or kind in kinds):
            yield item[field]


def _unanswered(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    answered = set(_values(body, "call_id", "function_call_output"))
    for id in _values(body, "call_id", "function_call"):
        if id not in answered:
            yield {"id": id}
    shown = set(_values(body, "call_id", "computer_call_output"))
    for id in _values(body, "call_id", "computer_call"):
        if id not in shown:
            yield {"id": id}
    if issuer["provider"] != "xai":  # where a custom call waits for its output
        yield from ({"id": id} for id in _values(body, "call_id", "custom_tool_call"))


def _uncalled(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    called: set[str] = set()
    for _, kind, item in _items(body):
        outputs = ("function_call_output", "computer_call_output")
        if kind in ("function_call", "computer_call"):
            called.add(item["call_id"])
        elif kind in outputs and item["call_id"] not in called:
            yield {"id": item["call_id"]}


def _answer_of(item: dict[str, Any]) -> str:
    found = _PLACE.fullmatch(item.get("id", ""))
    return found[1] if found else ""


def _place(item: dict[str, Any]) -> tuple[str, int] | None:
    found = _PLACE.fullmatch(item.get("id", ""))
    return (found[1], int(found[2])) if found else None


def _leading_nowhere(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for number, kind, item in _items(body):
        following = body["input"][number + 1 : number + 2] or [{}]
        if kind == "reasoning" and _place(following[0]) != (_answer_of(item), 1):
            yield {"id": item["id"]}


def _without_reasoning(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    reasoned: set[str] = set()
    for _, kind, item in _items(body):
        answer = _answer_of(item)
        if kind == "reasoning":
            reasoned.add(answer)
        elif answer and answer not in reasoned:
            yield {"id": item["id"], "kind": kind, "reasoning": f"rs_{answer}_0"}


def _unreadable(body: Body, issuer: Issuer) -> Iterator[dict[str, Any]]:
    for _, kind, item in _items(body):
        if kind != "reasoning":
            continue
        content = item.get("encrypted_content") or ""
        if content != seal(issuer, item["id"], item["summary"]):
            yield {"content": content[:4], "end": content[-4:]}


RULES = [
    Rule("Unknown parameter: '{path}'.", _unknown_fields),
    Rule("Invalid value: '{value}' at '{path}.role'.", _wrong_roles),
    Rule("Invalid value: '{value}' at '{path}.content'.", _wrong_parts),
    Rule(
        "Invalid 'input[{number}].id': '{id}'. Expected an ID that begins with"
        " '{prefix}'.",
        _foreign_prefixes,
    ),
    Rule("Missing required parameter: '{path}'.", _without_id),
    Rule(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to"
        " false.",
        _unstored,
    ),
    Rule(
        "Invalid 'input[{number}].call_id': string too long. Expected a string with"
        " maximum length 64, but got a string with length {length} instead.",
        _long_call_ids,
    ),
    Rule("Invalid 'input[{number}].call_id': empty string.", _empty_call_ids),
    Rule("Duplicate item found with id {id}.", _same_ids),
    Rule("Duplicate item found with call id {id}.", _same_calls),
    Rule("No tool output found for function call {id}.", _unanswered),
    Rule("No tool call found for function call output with call_id {id}.", _uncalled),
    Rule(
        "Item '{id}' of type 'reasoning' was provided without its required following"
        " item.",
        _leading_nowhere,
    ),
    Rule(
        "Item '{id}' of type '{kind}' was provided without its required 'reasoning'"
        " item: '{reasoning}'.",
        _without_reasoning,
    ),
    Rule("The encrypted content {content}...{end} could not be verified.", _unreadable),
]
