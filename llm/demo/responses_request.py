"""Parser of the demo's Responses requests: a body in, a `DemoPrompt` out.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from llm.demo.problem import Problem
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
from llm.wire.items import Item

_CONTENT = {"anyOf": [{"type": "string"}, PARTS]}
_TEXT = {"type": "string"}
_FILES = ("input_image", "input_file")
#: Required fields of items by type; items of other types are accepted unchecked.
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
_BODY: Mapping[str, Any] = {
    "type": "object",
    "required": ["model", "input"],
    "properties": {
        **COMMON,
        "input": {"anyOf": [_TEXT, {"type": "array", "items": _ITEM}]},
        "instructions": OPTIONAL_TEXT,
        "tools": list_of_tools({"required": ["name"], "properties": FUNCTION}),
        "max_output_tokens": OPTIONAL_COUNT,
        "reasoning": {**OPTIONAL_OBJECT, "properties": {"effort": OPTIONAL_TEXT}},
        "include": {"type": ["array", "null"]},
        "text": {
            **OPTIONAL_OBJECT,
            "properties": {"format": format_schema(NAMED_SCHEMA)},
        },
    },
}


def parse_prompt(body: dict[str, Any]) -> DemoPrompt:
    """Raises Problem for an invalid body or an unsupported feature."""
    check(_BODY, body)
    if body.get("previous_response_id"):
        raise Problem(
            400,
            "The demo keeps no responses; send the conversation as 'input'.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    messages, calls = _conversation(body)
    wanted = (body.get("text") or {}).get("format") or {}
    return prompt_of(
        body,
        messages,
        calls,
        functions=functions_of(body),
        effort=(body.get("reasoning") or {}).get("effort"),
        schema=schema_of(wanted, wanted),
        max_words=body.get("max_output_tokens"),
    )


def proof(parts: Sequence[str]) -> str:
    """A stand-in for encrypted reasoning: a digest of the text."""
    digest = hashlib.sha256("\n".join(["parley demo", *parts]).encode()).digest()
    return f"demo-{base64.urlsafe_b64encode(digest).decode()}"


def _conversation(body: Mapping[str, Any]) -> tuple[list[Message], CallHistory]:
    messages, calls = [], CallHistory()
    if instructions := body.get("instructions"):
        messages.append(Message("system", instructions))
    raw_input = body["input"]
    items = (
        [{"role": "user", "content": raw_input}]
        if isinstance(raw_input, str)
        else raw_input
    )
    for item in items:
        if item.get("type", "message") == "message":
            messages.append(message_of(item["role"], item["content"], _FILES))
            if item["role"] == "user":
                calls.start_turn()
        else:
            _add_item(item, calls)
    if waiting := calls.unanswered_ids:
        raise _bad_input(f"No tool output found for function call {waiting[0]}.")
    return messages, calls


def _add_item(item: Item, calls: CallHistory) -> None:
    match item["type"]:
        case "function_call":
            calls.add_call(item["call_id"], item["name"], item["arguments"])
        case "function_call_output":
            if not calls.add_output(item["call_id"], text_of(item["output"])):
                raise _bad_input(
                    "No tool call found for function call output with call_id "
                    f"{item['call_id']}."
                )
        case "reasoning":
            _check_proof(item)
        # Items of hosted tools are ignored, because the demo has no hosted tools.


def _check_proof(item: Item) -> None:
    """Raises Problem if the proof does not belong to this text or is not the demo's."""
    encrypted = item.get("encrypted_content")
    parts = [part["text"] for part in item["summary"]]
    if encrypted is not None and encrypted != proof(parts):
        raise Problem(
            400,
            "The encrypted content of a reasoning item could not be verified.",
            code="invalid_encrypted_content",
            param="input",
        )


def _bad_input(message: str) -> Problem:
    return Problem(400, message, param="input")
