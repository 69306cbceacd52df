"""OpenAPI schemas without a serializer, and lazy `extend_schema` decorators."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from drf_spectacular import utils
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

Described = TypeVar("Described", bound=Callable[..., Any])

JSON, EVENT_STREAM = "application/json", "text/event-stream"


_pending: list[Callable[[], object]] = []
_lock = Lock()


def describe(**options: Any) -> Callable[[Described], Described]:
    """Decorate like `extend_schema`, but only when the document is generated.

    `extend_schema` imports all modules that generate documents.
    """
    return partial(_defer, lambda: utils.extend_schema(**options))


def describe_view(**methods: dict[str, Any]) -> Callable[[Described], Described]:
    """Decorate like `extend_schema_view`; each value has arguments of `describe`."""

    def build_decorator() -> Callable[[Any], Any]:
        decorators = {
            name: utils.extend_schema(**each) for name, each in methods.items()
        }
        return utils.extend_schema_view(**decorators)

    return partial(_defer, build_decorator)


def _defer(
    describing: Callable[[], Callable[[Any], Any]], target: Described
) -> Described:
    _pending.append(lambda: describing()(target))
    return target


def apply_descriptions() -> None:
    """Apply the decorators; called before the document is generated."""
    with _lock:
        while _pending:
            _pending.pop(0)()


class ErrorDetailSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    code = serializers.CharField(allow_null=True)


class ErrorSerializer(serializers.Serializer[Any]):
    error = ErrorDetailSerializer()


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    if "oneOf" in schema:
        return {**schema, "oneOf": [*schema["oneOf"], {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def _omissible(properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Make properties nullable at all levels: null is the same as leaving out."""
    fields = {}
    for name, schema in properties.items():
        fields[name] = _nullable(schema)
        if "properties" in schema:
            fields[name]["properties"] = _omissible(schema["properties"])
    return fields


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
EVENT: dict[str, Any] = {
    "type": "object",
    "properties": {"type": {"type": "string"}, "sequence_number": {"type": "integer"}},
    "required": ["type"],
    "additionalProperties": True,
}
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
                {"type": "array", "items": {"type": "object"}},
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
                    "format": {"type": "object"},
                    "verbosity": {"type": "string"},
                },
            },
            "tool_choice": {"oneOf": [{"type": "string"}, {"type": "object"}]},
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
            "tools": {
                "type": "array",
                "items": {"type": "object"},
                "maxItems": 128,
                "description": "Functions that the client runs, in the Responses shape,"
                " and tools that the model's provider runs.",
            },
            "server_tools": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Which tools of this server may be called; [] for none.",
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
USAGE = _nullable(
    {
        "type": "object",
        "properties": {
            "input_tokens": {"type": "integer"},
            "output_tokens": {"type": "integer"},
            "total_tokens": {"type": "integer"},
        },
        "additionalProperties": True,
    }
)
TURN_ERROR = _nullable(
    {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "message": {"type": "string"},
        },
    }
)
NOTES = {
    "type": "array",
    "description": "What happened beside the answer, such as context left out.",
    "items": {
        "type": "object",
        "properties": {
            "kind": {"type": "string"},
            "text": {"type": "string"},
            "source": {"type": "string"},
            "at": {"type": "string", "format": "date-time"},
        },
        "required": ["kind", "text"],
        "additionalProperties": True,
    },
}
PRESET_NAME = {"type": "string", "description": "A preset's name."}
CAPABILITIES = {"type": "object", "additionalProperties": True}
MODEL_NAME = {
    "type": "string",
    "description": "Alias, provider/model, or a model's own name.",
}
RESPONSE = {
    "type": "object",
    "description": "A Responses object.",
    "properties": {
        "id": {"type": "string"},
        "object": {"type": "string", "enum": ["response"]},
        "created_at": {"type": "integer"},
        "status": {
            "type": "string",
            "enum": ["queued", "in_progress", "completed", "incomplete", "failed"],
        },
        "model": {"type": "string"},
        "output": ITEMS,
        "usage": USAGE,
        "error": TURN_ERROR,
    },
    "required": ["id", "object", "created_at", "status", "model", "output"],
    "additionalProperties": True,
}

UPLOAD = {
    "multipart/form-data": {
        "type": "object",
        "properties": {
            "file": {
                "type": "array",
                "items": {"type": "string", "format": "binary"},
            }
        },
        "required": ["file"],
    }
}
FILE = OpenApiResponse(OpenApiTypes.BINARY, "The file; a picture shows inline.")

KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="Your own name for this request: sent again, it repeats nothing.",
)
POSITION = [
    OpenApiParameter(
        "Last-Event-ID",
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        description="Position of the last event you know; goes before `after`.",
    ),
    OpenApiParameter("after", OpenApiTypes.STR, description="The same, as a query."),
]
FORM = OpenApiParameter(
    "format",
    OpenApiTypes.STR,
    enum=["events", "text"],
    description="`text`: only the answer's text, closed by `data: [DONE]`.",
)


def event_of(data: dict[str, Any]) -> dict[str, Any]:
    """Schema of a Server-Sent Event; `data` is the schema of its JSON data."""
    content = {"contentMediaType": JSON, "contentSchema": data}
    fields = {"id": {}, "event": {}, "data": content}
    properties = {name: {"type": "string", **more} for name, more in fields.items()}
    return {"type": "object", "properties": properties, "required": ["data"]}


def plain_event(**data: Any) -> dict[str, Any]:
    """Schema of an event without a name (so of type `message`) and without JSON."""
    properties = {
        "id": {"type": "string"},
        "event": {"type": "string", "enum": ["message"]},
        "data": {"type": "string", **data},
    }
    return {"type": "object", "properties": properties, "required": ["data"]}


_NAMED_EVENT = {**event_of(EVENT), "not": plain_event()}
_TEXT_EVENT = plain_event(description="With `format=text`.")
STREAM = OpenApiResponse(
    {"anyOf": [_NAMED_EVENT, _TEXT_EVENT]},
    "Server-Sent Events: `id` is the position, `event` the type, `data` the event;"
    " comments between them keep the connection open.",
)


#: Statuses for a body that is invalid, too large, or of another content type.
BODY = (400, 413, 415)
_SERVER_ERRORS = (500, 503)  # internal error, database unavailable


def errors(*statuses: int, public: bool = False) -> dict[Any, Any]:
    """Error responses that every operation has, and `statuses`.

    A `public` operation needs no token.
    """
    always = _SERVER_ERRORS if public else (401, 403, 429, *_SERVER_ERRORS)
    return {(status, JSON): ErrorSerializer for status in sorted({*always, *statuses})}


#: Headers of all answers; `_OF_STATUS` has those of some errors.
_HEADERS = {
    "X-Request-ID": "Under which the staff find this request in the log.",
    "WWW-Authenticate": "How to come in.",
    "Retry-After": "Seconds, where they are known.",
    "X-RateLimit-Limit-Requests": "A minute, where the token has a limit; so with"
    " `Remaining` and `Reset`, with `Tokens`, and as `anthropic-ratelimit-…`.",
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
