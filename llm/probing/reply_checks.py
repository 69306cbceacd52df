"""The tool and the schema of probes, and whether a reply uses them."""

from __future__ import annotations

import json

from llm.adaptation.structured import SchemaMismatch, json_in, schema_errors
from llm.probing.tiny_request import Reply
from llm.wire.items import Item

TOOL = {
    "type": "function",
    "name": "look_up_code",
    "description": "Returns the secret code of a drawer. Nobody can guess it.",
    "parameters": {
        "type": "object",
        "properties": {"drawer": {"type": "string"}},
        "required": ["drawer"],
        "additionalProperties": False,
    },
}
SCHEMA = {
    "type": "object",
    "properties": {
        "kestrel": {"type": "integer"},
        "verdict": {"type": "string", "enum": ["aye7", "nay7"]},
    },
    "required": ["kestrel", "verdict"],
    "additionalProperties": False,
}


def has_call(reply: Reply) -> bool:
    call = next(iter(reply.calls), None)
    return call is not None and call["name"] == TOOL["name"] and _names_drawer(call)


def has_two_calls(reply: Reply) -> bool:
    return len({call["call_id"] for call in reply.calls}) > 1


def follows_schema(reply: Reply) -> bool:
    try:
        return not schema_errors(SCHEMA, json_in(reply.text))
    except SchemaMismatch:
        return False


def _names_drawer(call: Item) -> bool:
    try:
        arguments = json.loads(call["arguments"])
    except ValueError:
        return False
    return isinstance(arguments, dict) and isinstance(arguments.get("drawer"), str)
