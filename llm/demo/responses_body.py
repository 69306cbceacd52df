"""A Responses body as the demo reads it: a dict in, a `Prompt` out.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from llm.demo.problem import Problem
from llm.demo.prompt import (
    ANY_OBJECT,
    PARTS,
    TOOL_CHOICE,
    Calls,
    Message,
    Offer,
    Prompt,
    check,
    choose,
    spoken,
)
from llm.wire.items import Item

_CONTENT = {"anyOf": [{"type": "string"}, PARTS]}
_TEXT = {"type": "string"}
#: What an item of each type must have; types we do not know may come back as they went.
_FIELDS: dict[str, dict[str, Any]] = {
    "message": {
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": _CONTENT,
    },
    "function_call": {
        "call_id": {"type": "string", "minLength": 1, "maxLength": 64},
        "name": _TEXT,
        "arguments": _TEXT,
    },
    "function_call_output": {"call_id": _TEXT, "output": _CONTENT},
    "reasoning": {
        "summary": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["text"],
                "properties": {"text": _TEXT},
            },
        }
    },
}
_ITEM = {
    "type": "object",
    "properties": {"type": _TEXT},
    "if": {"required": ["type"]},
    "then": {
        "allOf": [
            {
                "if": {"properties": {"type": {"const": type}}},
                "then": {"required": list(fields), "properties": fields},
            }
            for type, fields in _FIELDS.items()
        ]
    },
    "else": {"required": ["role", "content"], "properties": _FIELDS["message"]},
}
_OPTIONAL_TEXT = {"type": ["string", "null"]}
_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["model", "input"],
    "properties": {
        "model": {"type": "string"},
        "input": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": _ITEM}],
        },
        "instructions": _OPTIONAL_TEXT,
        "stream": {"type": ["boolean", "null"]},
        "tools": {
            "type": ["array", "null"],
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
                    "description": _OPTIONAL_TEXT,
                    "parameters": {"type": ["object", "null"]},
                },
                "if": {"properties": {"type": {"const": "function"}}},
                "then": {"required": ["name"]},
            },
        },
        "tool_choice": TOOL_CHOICE,
        "parallel_tool_calls": {"type": ["boolean", "null"]},
        "max_output_tokens": {"type": ["integer", "null"], "minimum": 1},
        "reasoning": {
            "type": ["object", "null"],
            "properties": {"effort": _OPTIONAL_TEXT},
        },
        "include": {"type": ["array", "null"]},
        "text": {
            "type": ["object", "null"],
            "properties": {
                "format": {
                    "type": ["object", "null"],
                    "required": ["type"],
                    "if": {"properties": {"type": {"const": "json_schema"}}},
                    "then": {
                        "required": ["name", "schema"],
                        "properties": {"schema": {"type": "object"}},
                    },
                }
            },
        },
    },
}


def read(body: dict[str, Any]) -> Prompt:
    """Raises Problem for a body that is none, and for what the demo cannot do."""
    check(_BODY, body)
    if body.get("previous_response_id"):
        raise Problem(
            400,
            "The demo keeps no responses; send the conversation as 'input'.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    messages, calls = _conversation(body)
    tools, must_call = choose(_offers(body), body.get("tool_choice"))
    effort = (body.get("reasoning") or {}).get("effort") or ""
    return Prompt(
        messages=messages,
        answered=calls.answered,
        tools=tools,
        must_call=must_call,
        parallel=body.get("parallel_tool_calls") is not False,
        effort="" if effort == "none" else effort,
        schema=_schema((body.get("text") or {}).get("format") or {}),
        max_words=body.get("max_output_tokens"),
    )


def proof(parts: Sequence[str]) -> str:
    """What stands for encrypted reasoning: it fits these words and no others."""
    digest = hashlib.sha256("\n".join(["parley demo", *parts]).encode()).digest()
    return f"demo-{base64.urlsafe_b64encode(digest).decode()}"


def _conversation(body: Mapping[str, Any]) -> tuple[list[Message], Calls]:
    messages, calls = [], Calls()
    if instructions := body.get("instructions"):
        messages.append(Message("system", instructions))
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for item in items:
        if item.get("type", "message") == "message":
            messages.append(_message(item))
            if item["role"] == "user":
                calls.turn()
        else:
            _take(item, calls)
    if waiting := calls.waiting:
        raise _bad_input(f"No tool output found for function call {waiting[0]}.")
    return messages, calls


def _message(item: Item) -> Message:
    content = item["content"]
    attached = 0
    if not isinstance(content, str):
        attached = sum(
            part["type"] in ("input_image", "input_file") for part in content
        )
    return Message(item["role"], spoken(content), attached)


def _take(item: Item, calls: Calls) -> None:
    match item["type"]:
        case "function_call":
            calls.call(item["call_id"], item["name"], item["arguments"])
        case "function_call_output":
            if not calls.output(item["call_id"], spoken(item["output"])):
                raise _bad_input(
                    "No tool call found for function call output with call_id "
                    f"{item['call_id']}."
                )
        case "reasoning":
            _check_proof(item)
        # Receipts of hosted tools come back as they went; we have none.


def _check_proof(item: Item) -> None:
    """A proof goes back only to the one who made it, with the words it is for."""
    given = item.get("encrypted_content")
    parts = [part["text"] for part in item["summary"]]
    if given is not None and given != proof(parts):
        raise Problem(
            400,
            "The encrypted content of a reasoning item could not be verified.",
            code="invalid_encrypted_content",
            param="input",
        )


def _offers(body: Mapping[str, Any]) -> list[Offer]:
    functions = [t for t in body.get("tools") or () if t["type"] == "function"]
    return [
        Offer(t["name"], t.get("description") or "", t.get("parameters") or {})
        for t in functions
    ]


def _schema(format: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if format.get("type") == "json_schema":
        schema: Mapping[str, Any] = format["schema"]
        return schema
    return ANY_OBJECT if format.get("type") == "json_object" else None


def _bad_input(message: str) -> Problem:
    return Problem(400, message, param="input")
