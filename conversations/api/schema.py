"""OpenAPI schemas without a serializer, and lazy `extend_schema` decorators."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

from drf_spectacular import utils
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from conversations.requests.schemas import (
    ITEMS,
    JSON,
    nullable,
)

Described = TypeVar("Described", bound=Callable[..., Any])

_pending: list[Callable[[], object]] = []
_lock = Lock()
_QUERY = "query_names"  # attribute of a described function or class


def describe(
    *, also_accepted: Sequence[str] = (), **options: Any
) -> Callable[[Described], Described]:
    """Decorate like `extend_schema`, but only when the document is generated.

    `extend_schema` imports all modules that generate documents. Requests with other
    query parameters than the described ones, and those in `also_accepted`, are refused.
    """

    def decorate(target: Described) -> Described:
        setattr(target, _QUERY, [*_names_in_query(options), *also_accepted])
        return _defer(lambda: utils.extend_schema(**options), target)

    return decorate


def describe_view(**methods: dict[str, Any]) -> Callable[[Described], Described]:
    """Decorate like `extend_schema_view`; each value has arguments of `describe`."""

    def build_decorator() -> Callable[[Any], Any]:
        decorators = {
            name: utils.extend_schema(**each) for name, each in methods.items()
        }
        return utils.extend_schema_view(**decorators)

    def decorate(target: Described) -> Described:
        names = {name: _names_in_query(each) for name, each in methods.items()}
        setattr(target, _QUERY, names)
        return _defer(build_decorator, target)

    return decorate


def _names_in_query(options: Mapping[str, Any]) -> list[str]:
    found: Iterable[OpenApiParameter] = options.get("parameters", ())
    return [each.name for each in found if each.location == OpenApiParameter.QUERY]


def described_query(view: object, method: str) -> list[str]:
    """Names of the query parameters that a method of a view accepts."""
    of_class: Mapping[str, list[str]] = getattr(view, _QUERY, {})
    own: list[str] | None = getattr(getattr(view, method, None), _QUERY, None)
    return of_class.get(method, []) if own is None else own


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


class ApiErrorDetailSerializer(serializers.Serializer[Any]):
    message = serializers.CharField()
    type = serializers.CharField()
    param = serializers.CharField(allow_null=True)
    code = serializers.CharField(allow_null=True)


class ApiErrorSerializer(serializers.Serializer[Any]):
    error = ApiErrorDetailSerializer()


USAGE = nullable(
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
TURN_ERROR = nullable(
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
    "description": "Notes about the turn, such as context that was left out.",
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
CAPABILITIES = {"type": "object", "additionalProperties": True}
PRICES = {
    "type": "object",
    "nullable": True,
    "properties": {"input": {"type": "number"}, "output": {"type": "number"}},
    "required": ["input", "output"],
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
                "type": "string",
                "format": "binary",
                "description": "Where several files are accepted, one part for each.",
            }
        },
        "required": ["file"],
    }
}
_FILE = OpenApiResponse(
    OpenApiTypes.BINARY, "The file; pictures are sent for inline display."
)
#: Answers that are files; `*/*` because a file has its own content type.
FILE = {(200, kind): _FILE for kind in ("application/octet-stream", "*/*")}

BRANCH = OpenApiParameter(
    "branch",
    str,
    description=(
        "Only the turns of one branch, from the first to the last: the id of a turn on"
        " it, or `shown` for the branch that the user looks at."
    ),
)
LEAF = OpenApiParameter(
    "leaf",
    str,
    description="Only this turn and those that it follows, from the first on.",
)
KEY = OpenApiParameter(
    "Idempotency-Key",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description=(
        "Unique key of this request: a second request with the same key is not"
        " executed again."
    ),
)
POSITION = [
    OpenApiParameter(
        "Last-Event-ID",
        OpenApiTypes.STR,
        OpenApiParameter.HEADER,
        description=(
            "Position of the last event that was received; takes precedence over"
            " `after`."
        ),
    ),
    OpenApiParameter(
        "after", OpenApiTypes.STR, description="The same as a query parameter."
    ),
]
FORM = OpenApiParameter(
    "format",
    OpenApiTypes.STR,
    enum=["events", "text"],
    description="`text`: only the text of the answer, ended by `data: [DONE]`.",
)


STREAM = OpenApiResponse(
    {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
        "required": ["data"],
    },
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
    # 400 is the answer to unknown query parameters.
    always = (400, *_SERVER_ERRORS) if public else (400, 401, 403, 429, *_SERVER_ERRORS)
    return {
        (status, JSON): ApiErrorSerializer for status in sorted({*always, *statuses})
    }


LIMIT = OpenApiParameter(
    "limit",
    {"type": "integer", "minimum": 1, "maximum": 200},
    description="Rows of a page; as many as there are, up to 1000, if left out.",
)
CURSOR = OpenApiParameter(
    "cursor", str, description="Of another page: from `next` or `previous`."
)
QUERY = OpenApiParameter(
    "query", str, description="Only rows whose names or texts contain this."
)


def choice_of(name: str, choices: Any) -> OpenApiParameter:
    return OpenApiParameter(name, str, enum=choices.values, description="Only these.")


CONVERSATION_FILTERS = [
    OpenApiParameter("query", str, description="Only titles that contain this."),
    OpenApiParameter("model", str, description="Used by any of its turns."),
    OpenApiParameter("tool", str, description="Called by any of its turns."),
    OpenApiParameter("folder", int, description="In the folder with this id."),
    OpenApiParameter("tag", str, description="With this tag."),
    OpenApiParameter("archived", str, enum=["no", "yes", "only"], default="yes"),
    OpenApiParameter(
        "api",
        str,
        enum=["yes", "no", "only"],
        default="yes",
        description="Those that responses of the gateway opened.",
    ),
]


def list_parameters(*filters: str) -> list[OpenApiParameter]:
    """Parameters of a list that `pagination.list_rows` cuts."""
    own = [OpenApiParameter(name, str, description="Only these.") for name in filters]
    return [LIMIT, CURSOR, QUERY, *own]


def widen_optional_choices(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Let a choice that may be empty or null be any text, its values stay in the
    description; a hook of drf-spectacular. It would add schemas that generators of
    clients read wrongly."""
    _widen(result["components"]["schemas"])
    return result


def _widen(node: Any) -> None:
    if isinstance(node, dict):
        values = node.get("enum")
        if isinstance(values, list) and ("" in values or None in values):
            del node["enum"]
        for each in node.values():
            _widen(each)
    elif isinstance(node, list):
        for each in node:
            _widen(each)


def complete(result: dict[str, Any], **context: Any) -> dict[str, Any]:
    """Add what drf-spectacular leaves out; a postprocessing hook of it.

    The first sentence of a description is the summary, where there is no other. An
    operation without authentication says so.
    """
    for path in result["paths"].values():
        for operation in path.values():
            text = " ".join(operation.get("description", "").split())
            first = re.split(r"[.;:](?= |$)", text)[0]
            operation.setdefault("summary", first)
            operation.setdefault("security", [])
    _drop_untyped_nullable(result["components"]["schemas"])
    return result


def _drop_untyped_nullable(node: Any) -> None:
    """A schema without a type permits null as it is."""
    if isinstance(node, dict):
        is_typed = {"type", "allOf", "oneOf", "$ref"} & node.keys()
        if node.get("nullable") is True and not is_typed:
            del node["nullable"]
        for each in node.values():
            _drop_untyped_nullable(each)
    elif isinstance(node, list):
        for each in node:
            _drop_untyped_nullable(each)
