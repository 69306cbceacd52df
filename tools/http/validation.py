"""Validation of an HTTP tool's settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from llm.http.addresses import Network, looks_like_address, parse_address, parse_network
from llm.wire.header_syntax import HEADER_NAME, HEADER_VALUE
from tools.http.request_template import (
    METHODS_WITHOUT_BODY,
    PLACEHOLDER,
    ParameterLocation,
    RequestTemplate,
)

#: Headers that the HTTP client sets itself, or that would contradict it.
FORBIDDEN_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_SECRET_HEADER = re.compile(r"auth|key|token|secret|password|session", re.IGNORECASE)

Problem = tuple[str, str]  # the field, and a sentence


def find_problems(
    definition: RequestTemplate,
    parameters: Mapping[str, Any],
    secret_names: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield the problems; headers and parameters must have passed their own checks."""
    yield from (("url", text) for text in url_problems(definition.url))
    for name in definition.headers:
        if _SECRET_HEADER.search(name):
            yield "headers", f"{name!r} looks secret: write it as a secret header."
        if name.lower() in {each.lower() for each in secret_names}:
            yield "headers", f"{name!r} is already a secret header."
    yield from _argument_problems(definition, parameters)


def url_problems(template: str) -> Iterator[str]:
    fixed, _, path = _split_url(template)
    try:
        url = urlsplit(template)
        host, _port = url.hostname or "", url.port
    except ValueError:
        yield "This is not a URL."
        return
    if url.scheme not in ("http", "https") or not host or re.search(r"\s", template):
        yield "Write a URL such as https://host/things/{id}."
    elif "@" in url.netloc:
        yield "Leave out user and password; use a secret header."
    elif url.fragment:
        yield "Leave out the '#' and the part after it."
    elif re.search(r"[{}]", fixed + url.query):
        yield "Placeholders may stand in the path only."
    elif re.search(r"[{}]", PLACEHOLDER.sub("", path)):
        yield "A placeholder is a name in braces, such as {id}."
    elif looks_like_address(host) and parse_address(host) is None:
        yield "Write the address of the host in its usual form."


def header_problems(headers: Any) -> Iterator[str]:
    if not isinstance(headers, dict):
        yield 'Write a JSON object, such as {"Accept-Language": "en"}.'
        return
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name):
            yield f"{name!r} is not a valid header name."
        elif name.lower() in FORBIDDEN_HEADERS:
            yield f"{name!r} is set by the server; remove it."
        elif not isinstance(value, str) or not HEADER_VALUE.fullmatch(value):
            yield f"The header {name!r} must be one line of plain ASCII text."


def parse_locations(places: Any) -> tuple[dict[str, ParameterLocation], list[str]]:
    """The valid locations, and what is wrong with the others."""
    if not isinstance(places, dict):
        return {}, ['Write a JSON object, such as {"lang": "header:Accept-Language"}.']
    read, wrong = {}, []
    for argument, text in places.items():
        try:
            read[argument] = ParameterLocation.parse(argument, str(text))
        except ValueError as exc:
            wrong.append(f"{argument!r}: {exc}.")
    return read, wrong


def parse_networks(text: str) -> tuple[list[Network], list[str]]:
    """The valid networks, one on each line, and what is wrong with the others."""
    read, wrong = [], []
    for line in text.split():
        try:
            read.append(parse_network(line))
        except ValueError as exc:
            wrong.append(f"{exc}.")
    return read, wrong


def _split_url(template: str) -> tuple[str, str, str]:
    """Scheme and host, the slash, and the path without the query."""
    scheme, separator, rest = template.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host}", slash, re.split(r"[?#]", path, maxsplit=1)[0]


def _argument_problems(
    definition: RequestTemplate, parameters: Mapping[str, Any]
) -> Iterator[Problem]:
    known = parameters.get("properties") or {}
    for argument in definition.locations:
        if argument not in known:
            yield "places", f"{argument!r} is not a property of the schema."
    locations = {argument: definition.location_of(argument) for argument in known}
    yield from _path_problems(definition, parameters, locations)
    yield from _body_problems(definition, locations)
    for argument, location in locations.items():
        if location.kind == "header":
            for text in header_problems({location.name: ""}):
                yield "places", f"{argument!r}: {text}"


def _path_problems(
    definition: RequestTemplate,
    parameters: Mapping[str, Any],
    locations: Mapping[str, ParameterLocation],
) -> Iterator[Problem]:
    in_path = {
        p.name: argument for argument, p in locations.items() if p.kind == "path"
    }
    required = parameters.get("required") or ()
    for name in definition.placeholders:
        if name not in in_path:
            yield "url", f"{{{name}}} is not a property of the schema."
        elif in_path[name] not in required:
            yield (
                "parameters",
                f"{in_path[name]!r} is in the path: make it a required property.",
            )
    for name in in_path.keys() - set(definition.placeholders):
        yield "places", f"the path has no {{{name}}}."


def _body_problems(
    definition: RequestTemplate, locations: Mapping[str, ParameterLocation]
) -> Iterator[Problem]:
    fields = [argument for argument, p in locations.items() if p.kind == "body"]
    whole = [argument for argument, p in locations.items() if p.kind == "whole_body"]
    if (fields or whole) and definition.method in METHODS_WITHOUT_BODY:
        yield "places", f"{definition.method} has no body."
    if len(whole) > 1 or (whole and fields):
        yield (
            "places",
            f"{whole[0]!r} is the whole body, so no other argument can be in the body.",
        )
