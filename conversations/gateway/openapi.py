"""The gateway's part of the OpenAPI document: requests and answers below `/v1`.

Request schemas come from the checks that parse requests, schemas of Open Responses'
answers from the standard, and all others from `openapi.json`. The document is of
OpenAPI 3.1, as the standard's schemas are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from conversations.gateway.document import openresponses_schemas
from conversations.requests.schemas import EVENT_STREAM, JSON, with_headers
from llm.pricing.usage_report import GROUPINGS
from llm.wire.facades import body_checks

Schema = dict[str, Any]


_SCHEMAS: dict[str, Schema] = orjson.loads(
    Path(__file__).with_suffix(".json").read_bytes()
)
#: Statuses of every endpoint: bad token, not permitted, rate limited, internal error,
#: shutting down.
_COMMON_STATUSES = (401, 403, 429, 500, 503)
_BODY_STATUSES = (400, 413)  # the body is invalid or too large
_MODEL_STATUSES = (404, 502, 504)  # the model does not exist or does not answer
_REFUSALS = {
    400: "The request is invalid.",
    401: "The token is missing, wrong, expired or revoked.",
    403: "The token lacks the scope, or may not be used from this address.",
    404: "There is no such model, response or conversation for this token.",
    413: "The request is too large.",
    429: (
        "A rate limit, a budget or a quota is used up; `retry-after` says when to"
        " retry."
    ),
    500: "Internal error.",
    502: "The provider refused Parley's key, or sent an invalid response.",
    503: "The provider is down, or this server is; try again in a moment.",
    504: "The provider did not answer in time.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOperation:
    """A method of a path. `body`, `answer` and `stream` are names of schemas."""

    path: str
    method: str = "post"
    name: str
    summary: str
    body: str = ""
    answer: str
    stream: str = ""  # the schema of its events
    statuses: tuple[int, ...] = ()  # of errors, in addition to those of all endpoints
    errors: str = "OpenAIError"
    query: tuple[str, ...] = ()  # names of parameters
    headers: tuple[str, ...] = ()  # of the answer
    more: Schema = field(default_factory=dict)


_REQUEST_STATUSES = (*_BODY_STATUSES, *_MODEL_STATUSES)
_ID = "/v1/responses/{response_id}"
OPERATIONS = (
    GatewayOperation(
        path="/v1/responses",
        name="createResponse",
        summary="Create a response (Open Responses, OpenAI's Responses API)",
        body="ResponsesRequest",
        answer="OpenResponsesResponseResource",
        stream="ResponseEvent",
        statuses=_REQUEST_STATUSES,
        headers=("x-parley-degraded",),
        more={
            "x-openresponses-websocket": {
                "clientMessage": {"$ref": "#/components/schemas/ResponsesMessage"},
                "errorMessage": {
                    "$ref": "#/components/schemas/OpenResponsesWebSocketErrorEvent"
                },
            }
        },
    ),
    GatewayOperation(
        path=_ID,
        method="get",
        name="getResponse",
        summary="Retrieve a stored response, or stream its events again",
        answer="OpenResponsesResponseResource",
        stream="ResponseEvent",
        statuses=(400, 404),
        query=("stream", "starting_after"),
    ),
    GatewayOperation(
        path=_ID,
        method="delete",
        name="deleteResponse",
        summary="Delete a stored response",
        answer="DeletedResponse",
        statuses=(404,),
    ),
    GatewayOperation(
        path=f"{_ID}/cancel",
        name="cancelResponse",
        summary="Cancel a response; does nothing if it has ended",
        answer="OpenResponsesResponseResource",
        statuses=(*_BODY_STATUSES, 404),
    ),
    GatewayOperation(
        path=f"{_ID}/input_items",
        method="get",
        name="listInputItems",
        summary="List the input items of a response",
        answer="ItemList",
        statuses=(400, 404),
        query=("limit", "order", "after"),
    ),
    GatewayOperation(
        path="/v1/responses/compact",
        name="compactResponse",
        summary="Summarize a long conversation",
        body="CompactRequest",
        answer="OpenResponsesCompactResource",
        statuses=_REQUEST_STATUSES,
    ),
    GatewayOperation(
        path="/v1/responses/input_tokens",
        name="countInputTokens",
        summary="Estimate the tokens of an input",
        body="ResponsesRequest",
        answer="InputTokens",
        statuses=(*_BODY_STATUSES, 404),
        headers=("x-parley-token-count",),
    ),
    GatewayOperation(
        path="/v1/chat/completions",
        name="createChatCompletion",
        summary="Create a chat completion (OpenAI's Chat Completions API)",
        body="ChatRequest",
        answer="ChatCompletion",
        stream="ChatCompletionChunk",
        statuses=_REQUEST_STATUSES,
        headers=("x-parley-degraded",),
    ),
    GatewayOperation(
        path="/v1/messages",
        name="createMessage",
        summary="Create a message (Anthropic's Messages API)",
        body="MessagesRequest",
        answer="AnthropicMessage",
        stream="AnthropicEvent",
        statuses=_REQUEST_STATUSES,
        errors="AnthropicError",
        headers=("x-parley-degraded",),
    ),
    GatewayOperation(
        path="/v1/messages/count_tokens",
        name="countMessageTokens",
        summary="Estimate the tokens of messages",
        body="CountTokensRequest",
        answer="MessageTokens",
        statuses=(*_BODY_STATUSES, 404),
        errors="AnthropicError",
        headers=("x-parley-token-count",),
    ),
    GatewayOperation(
        path="/v1/usage",
        method="get",
        name="reportUsage",
        summary="Report tokens and cost by token, user, group, model, tag or day",
        answer="UsageReport",
        statuses=(400,),
        query=("first", "last", "by", "everybody", "user", "format"),
    ),
    GatewayOperation(
        path="/v1/models",
        method="get",
        name="listModels",
        summary="List the models that this token may use",
        answer="AnyModelList",
        errors="AnyError",
        query=("anthropic-version",),
    ),
    GatewayOperation(
        path="/v1/models/{name}",
        method="get",
        name="getModel",
        summary="Retrieve a model by any of its names",
        answer="AnyModel",
        statuses=(404,),
        errors="AnyError",
        query=("anthropic-version",),
    ),
)

_PARAMETERS: dict[str, Schema] = {
    "response_id": {"in": "path", "required": True, "schema": {"type": "string"}},
    "name": {
        "in": "path",
        "required": True,
        "description": "The slash of `provider/model` is not encoded.",
        "schema": {"type": "string"},
    },
    "first": {"in": "query", "schema": {"type": "string", "format": "date"}},
    "last": {"in": "query", "schema": {"type": "string", "format": "date"}},
    "by": {
        "in": "query",
        "schema": {"type": "string", "enum": list(GROUPINGS), "default": "model"},
    },
    "everybody": {
        "in": "query",
        "description": "Of all users, for staff.",
        "schema": {"type": "boolean"},
    },
    "user": {
        "in": "query",
        "description": "The id of a user, for staff.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "format": {
        "in": "query",
        "description": "`csv`: the groups as a file.",
        "schema": {"type": "string", "enum": ["json", "csv"]},
    },
    "stream": {"in": "query", "schema": {"type": "boolean"}},
    "starting_after": {
        "in": "query",
        "description": "Sequence number of the last event that was received.",
        "schema": {"type": "integer", "minimum": -1},
    },
    "limit": {
        "in": "query",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    },
    "order": {
        "in": "query",
        "schema": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
    },
    "after": {
        "in": "query",
        "description": "Id of the last item that was received.",
        "schema": {"type": "string"},
    },
    "anthropic-version": {
        "in": "header",
        "description": "With this header the response has Anthropic's format.",
        "schema": {"type": "string"},
    },
}

_STANDARD = "OpenResponses"  # prefix of the names of its schemas
_COMPACTED = ("model", "input", "previous_response_id")
_SECURITY: list[Schema] = [{"accessToken": []}, {"apiKey": []}]
_BEARER = {"type": "http", "scheme": "bearer"}
_API_KEY = {"type": "apiKey", "in": "header", "name": "x-api-key"}


def document(info: Schema) -> Schema:
    """The OpenAPI document of the gateway."""
    paths: Schema = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return with_headers(
        {
            "openapi": "3.1.0",
            "info": info,
            "servers": [{"url": "/", "description": "This server"}],
            "tags": [{"name": "gateway", "description": "What vendors' SDKs call."}],
            "paths": paths,
            "components": {
                "schemas": schemas(),
                "securitySchemes": {"accessToken": _BEARER, "apiKey": _API_KEY},
            },
        }
    )


def schemas() -> dict[str, Schema]:
    """All schemas of the gateway by name: requests, our own, and the standard's."""
    requests = body_checks.schemas()
    request = requests["ResponsesRequest"]
    fields = {**request["properties"], "input": _ref("ResponsesInput")}
    by_socket = {**fields, "type": {"enum": ["response.create"]}}
    to_compact = {name: fields[name] for name in _COMPACTED}
    return {
        **_extend(openresponses_schemas.schemas(_STANDARD)),
        **_SCHEMAS,
        **requests,
        "ResponsesInput": request["properties"]["input"],
        "ResponsesRequest": {**request, "properties": fields},
        "ResponsesMessage": _body(by_socket, "type", *request["required"]),
        "CompactRequest": _body(to_compact, "model"),
        "ResponseEvent": {
            "anyOf": [_ref(_STANDARD + n) for n in openresponses_schemas.EVENTS]
        },
    }


def _body(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": [*required]}


def _extend(standard: dict[str, Schema]) -> dict[str, Schema]:
    """Add the items of hosted tools and our own, as the standard permits."""
    items = standard[f"{_STANDARD}ItemField"]
    known = {"oneOf": items["oneOf"], "description": items["description"]}
    extended = {"anyOf": [known, _ref("ExtensionItem")]}
    return {**standard, f"{_STANDARD}ItemField": extended}


def _operation(operation: GatewayOperation) -> Schema:
    described: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": ["gateway"],
        "security": _SECURITY,
        "responses": {"200": _success(operation), **_refusals(operation)},
        **operation.more,
    }
    if parameters := [*_in_path(operation.path), *operation.query]:
        described["parameters"] = [_parameter(name) for name in parameters]
    if operation.body:
        content = {JSON: {"schema": _ref(operation.body)}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _success(operation: GatewayOperation) -> Schema:
    content = {JSON: {"schema": _ref(operation.answer)}}
    if operation.stream:
        content[EVENT_STREAM] = {"schema": _events(operation.stream)}
    headers = {name: _header() for name in operation.headers}
    return {"description": operation.summary, "content": content, "headers": headers}


def _events(name: str) -> Schema:
    """Anthropic's streams end with a named event, all others with `[DONE]`."""
    event = _event_of(_ref(name))
    if name == "AnthropicEvent":
        return event
    return {"anyOf": [event, _plain_event(enum=["[DONE]"])]}


def _refusals(operation: GatewayOperation) -> dict[str, Schema]:
    content = {JSON: {"schema": _ref(operation.errors)}}
    return {
        str(status): {"description": _REFUSALS[status], "content": content}
        for status in sorted({*_COMMON_STATUSES, *operation.statuses})
    }


def _in_path(path: str) -> Iterable[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _parameter(name: str) -> Schema:
    return {"name": name, **_PARAMETERS[name]}


def _header() -> Schema:
    return {"schema": {"type": "string"}}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _event_of(data: dict[str, Any]) -> dict[str, Any]:
    """Schema of a Server-Sent Event; `data` is the schema of its JSON data."""
    content = {"contentMediaType": JSON, "contentSchema": data}
    fields = {"id": {}, "event": {}, "data": content}
    properties = {name: {"type": "string", **more} for name, more in fields.items()}
    return {"type": "object", "properties": properties, "required": ["data"]}


def _plain_event(**data: Any) -> dict[str, Any]:
    """Schema of an event without a name (so of type `message`) and without JSON."""
    properties = {
        "id": {"type": "string"},
        "event": {"type": "string", "enum": ["message"]},
        "data": {"type": "string", **data},
    }
    return {"type": "object", "properties": properties, "required": ["data"]}
