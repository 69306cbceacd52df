"""OpenAPI schemas of requests, and of the events that several APIs send."""

from __future__ import annotations

from typing import Any

from llm.pricing.caller import MAX_TAGS, TAG_PATTERN
from llm.wire.facades.common_shape import MAX_CACHE_SECONDS

JSON, EVENT_STREAM = "application/json", "text/event-stream"


def nullable(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of OpenAPI 3.0 that permits null too."""
    if "oneOf" in schema:
        first, *others = schema["oneOf"]
        return {**schema, "oneOf": [nullable(first), *others]}
    return {**schema, "nullable": True}


def _omissible(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Make properties nullable at all levels: null is the same as leaving out."""
    fields = {}
    for name, schema in properties.items():
        fields[name] = nullable(schema)
        if "properties" in schema:
            fields[name]["properties"] = _omissible(schema["properties"])
    return fields


_ANY_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": {}}
ITEM: dict[str, Any] = {
    "type": "object",
    "description": "A Responses item: message, reasoning, function_call, …",
    "properties": {
        "type": {"type": "string"},
        "id": {"type": "string"},
        "status": {"type": "string"},
    },
    "required": ["type"],
    "additionalProperties": True,
}
ITEMS = {"type": "array", "items": ITEM}
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {
            "type": "string",
            "enum": ["user", "system", "developer", "assistant"],
        },
        "content": {
            "oneOf": [
                {"type": "string"},
                {"type": "array", "items": _ANY_OBJECT},
            ]
        },
    },
    "required": ["role", "content"],
}
INPUT = {
    "oneOf": [
        {"type": "string"},
        {"type": "array", "items": {"anyOf": [ITEM, _MESSAGE]}},
    ]
}
OPTIONS: dict[str, Any] = {
    "type": "object",
    "properties": _omissible(
        {
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "top_p": {"type": "number", "minimum": 0, "maximum": 1},
            "max_output_tokens": {"type": "integer", "minimum": 1},
            "reasoning": {
                "type": "object",
                "properties": {
                    "effort": {"type": "string"},
                    "summary": {"type": "string"},
                },
            },
            "text": {
                "type": "object",
                "properties": {
                    "format": _ANY_OBJECT,
                    "verbosity": {"type": "string"},
                },
            },
            "tool_choice": {"oneOf": [{"type": "string"}, _ANY_OBJECT]},
            "parallel_tool_calls": {"type": "boolean"},
            "stop": {
                "oneOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "maxItems": 4},
                ]
            },
            "seed": {"type": "integer"},
            "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
            "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
            "ignore_invalid_options": {"type": "boolean"},
            "cache_seconds": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_CACHE_SECONDS,
                "description": "How long the answer is stored for equal requests of the"
                " same user; 0 for never.",
            },
            "tools": {
                "type": "array",
                "items": _ANY_OBJECT,
                "maxItems": 128,
                "description": "Functions that the client runs, in the Responses shape,"
                " and tools that the model's provider runs.",
            },
            "server_tools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Tools of this server that may be called; [] for none.",
            },
            "disabled_tools": {"type": "array", "items": {"type": "string"}},
            "metadata": {
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
        }
    ),
    "additionalProperties": False,
}
PRESET_NAME = {"type": "string", "description": "A preset's name."}
TAGS = {
    "type": "array",
    "maxItems": MAX_TAGS,
    "items": {"type": "string", "pattern": f"^{TAG_PATTERN}$"},
}
MODEL_NAME = {
    "type": "string",
    "description": "Alias, provider/model, or the provider's name of the model.",
}


#: Headers of all answers; `_OF_STATUS` has those of some errors.
_HEADERS = {
    "X-Request-ID": "Id of the request in the server's log.",
    "WWW-Authenticate": "Authentication scheme.",
    "Retry-After": "Seconds after which to retry, if known.",
    "X-RateLimit-Limit-Requests": (
        "Requests per minute, if the token has a limit. There are also headers with"
        " `Remaining` and `Reset`, with `Tokens`, and `anthropic-ratelimit-…`."
    ),
}
_OF_STATUS = {
    "401": ["WWW-Authenticate"],
    "429": ["Retry-After"],
    "503": ["Retry-After"],
}


def with_headers(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Add the common headers to `result`; a postprocessing hook of drf-spectacular."""
    result["components"]["headers"] = {
        name: {
            "description": text,
            "required": name in ("X-Request-ID", "WWW-Authenticate"),
            "schema": {"type": "string"},
        }
        for name, text in _HEADERS.items()
    }
    operations = [o for path in result["paths"].values() for o in path.values()]
    for operation in operations:
        for status, response in operation["responses"].items():
            names = ["X-Request-ID", *_OF_STATUS.get(status, ())]
            if operation.get("security"):
                names.append("X-RateLimit-Limit-Requests")
            shared = {name: {"$ref": f"#/components/headers/{name}"} for name in names}
            response["headers"] = {**response.get("headers", {}), **shared}
    return result
