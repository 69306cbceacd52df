"""Request template of an HTTP tool: builds a request from a model's arguments. Pure.

The URL is a template with `{placeholders}` in its path (RFC 6570, level 1). An argument
goes to its configured location. Without one it goes into the path if the template names
it, else into the query of GET, HEAD and DELETE and into the body of other methods.

Source: https://www.rfc-editor.org/rfc/rfc6570
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args
from urllib.parse import quote

import orjson

from tools.errors import ToolError
from tools.http.exchange import OutgoingRequest

LocationKind = Literal[
    "path",
    "query",  # a list is repeated: a=1&a=2
    "query_commas",  # a=1,2
    "query_deep",  # of an object: a[b]=1
    "header",
    "body",  # one of its fields
    "whole_body",  # the argument is the body
]
BodyKind = Literal["json", "form"]

METHODS_WITHOUT_BODY = frozenset({"GET", "HEAD"})
PLACEHOLDER = re.compile(r"\{(\w+)\}", re.ASCII)

_METHODS_WITH_QUERY = METHODS_WITHOUT_BODY | {"DELETE"}
_CONTENT_TYPES: Mapping[BodyKind, str] = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
}
#: The content types that a model can read, JSON preferred.
ACCEPT = "application/json, text/*;q=0.9, image/*;q=0.8, */*;q=0.1"


@dataclass(frozen=True, slots=True)
class ParameterLocation:
    kind: LocationKind
    name: str  # of the argument in the request

    @classmethod
    def parse(cls, argument: str, text: str) -> ParameterLocation:
        """Parse "query" or "header:X-Trace". Raises ValueError."""
        kind, _, name = text.partition(":")
        if kind not in get_args(LocationKind):
            options = ", ".join(get_args(LocationKind))
            raise ValueError(f"there is no location {kind!r}; use {options}")
        return cls(cast(LocationKind, kind), name or argument)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTemplate:
    method: str
    url: str  # a template
    headers: Mapping[str, str] = field(default_factory=dict)
    arguments: Collection[str] = ()  # names of all properties of the schema
    locations: Mapping[str, ParameterLocation] = field(default_factory=dict)
    body: BodyKind = "json"

    @property
    def placeholders(self) -> list[str]:
        return PLACEHOLDER.findall(self.url)

    def location_of(self, argument: str) -> ParameterLocation:
        if location := self.locations.get(argument):
            return location
        if argument in self.placeholders:
            return ParameterLocation("path", argument)
        in_query = self.method in _METHODS_WITH_QUERY
        return ParameterLocation("query" if in_query else "body", argument)

    @property
    def has_fields(self) -> bool:
        """True if an argument may be a field of the body. Each call then sends a body,
        also one that has no such argument."""
        return any(self.location_of(each).kind == "body" for each in self.arguments)

    @property
    def has_whole_body(self) -> bool:
        """True if one argument is the whole body."""
        kinds = {self.location_of(each).kind for each in self.arguments}
        return "whole_body" in kinds


def build_request(
    definition: RequestTemplate,
    arguments: Mapping[str, Any],
    *,
    secret_headers: Mapping[str, str] | None = None,
    idempotency_key: str = "",
    callback: tuple[ParameterLocation, str] | None = None,
) -> OutgoingRequest:
    """Raises ToolError if an argument cannot be sent in its location.

    `callback` is the location and the value of Parley's callback URL.
    """
    parts = _RequestParts()
    for argument, value in arguments.items():
        parts.add(definition.location_of(argument), argument, value)
    if callback:
        location, url = callback
        parts.add(location, "callback_url", url)
    headers = {"Accept": ACCEPT, **definition.headers, **parts.headers}
    body, content_type = _body(definition, parts)
    if content_type and "content-type" not in map(str.lower, headers):
        headers["Content-Type"] = content_type
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    return OutgoingRequest(
        method=definition.method,
        url=_url(definition, parts),
        headers=headers,
        secret_headers=secret_headers or {},
        body=body,
    )


class _RequestParts:
    """The parts of a request that the arguments fill."""

    def __init__(self) -> None:
        self.path: dict[str, str] = {}
        self.query: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        self.fields: dict[str, Any] = {}
        self.whole_body: Any = None

    def add(self, location: ParameterLocation, argument: str, value: Any) -> None:
        match location.kind:
            case "body":
                self.fields[location.name] = value
            case "whole_body":
                self.whole_body = value
            case _ if value is None:
                pass  # null counts as absent
            case "path":
                self.path[location.name] = _segment(argument, value)
            case "header":
                self.headers[location.name] = _header(argument, value)
            case "query":
                self.query += _pairs(location.name, value)
            case "query_commas":
                self.query.append((location.name, _join(value)))
            case "query_deep":
                self.query += _deep_pairs(location.name, value)


def _url(definition: RequestTemplate, parts: _RequestParts) -> str:
    for name in definition.placeholders:
        if name not in parts.path:
            raise ToolError(f"{name!r} is part of the address and must be given.")
    url = PLACEHOLDER.sub(lambda match: parts.path[match[1]], definition.url)
    if not parts.query:
        return url
    return f"{url}{'&' if '?' in url else '?'}{_encode(parts.query)}"


def _body(
    definition: RequestTemplate, parts: _RequestParts
) -> tuple[bytes | None, str]:
    """The body and its content type; None and "" for no body."""
    if parts.whole_body is not None:
        return _whole_body(definition, parts.whole_body)
    if not parts.fields and not definition.has_fields:
        return None, ""
    content_type = _CONTENT_TYPES[definition.body]
    if definition.body == "json":
        return _json(parts.fields), content_type
    pairs = [
        pair
        for name, value in parts.fields.items()
        if value is not None
        for pair in _pairs(name, value)
    ]
    return _encode(pairs).encode(), content_type


def _whole_body(definition: RequestTemplate, value: Any) -> tuple[bytes, str]:
    headers = {name.lower(): text for name, text in definition.headers.items()}
    content_type = headers.get("content-type", "application/json")
    if isinstance(value, str) and "json" not in content_type:
        return value.encode(errors="replace"), content_type
    return _json(value), content_type


# Values as text


def _segment(argument: str, value: Any) -> str:
    text = ",".join(map(_quote, value)) if isinstance(value, list) else _quote(value)
    if text in ("", ".", ".."):
        # Path normalization would turn "/users/{id}" into another address.
        raise ToolError(f"{argument!r} cannot be {_text(value)!r}.")
    return text


def _header(argument: str, value: Any) -> str:
    text = _join(value).strip()
    if not (text.isascii() and text.isprintable()):
        raise ToolError(f"{argument!r} must be one line of plain ASCII characters.")
    return text


def _pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    values = value if isinstance(value, list) else [value]
    yield from ((name, _text(each)) for each in values)


def _deep_pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield from _pairs(name, value)
        return
    for key, each in value.items():
        yield from _deep_pairs(f"{name}[{key}]", each)


def _join(value: Any) -> str:
    return ",".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value).decode()


def _json(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as exc:  # a lone surrogate, an integer beyond 64 bits
        raise ToolError(
            "an argument contains a value that JSON cannot represent."
        ) from exc


def _quote(value: Any) -> str:
    return quote(_text(value), safe="", errors="replace")


def _encode(pairs: Collection[tuple[str, str]]) -> str:
    return "&".join(f"{_quote(name)}={_quote(text)}" for name, text in pairs)
