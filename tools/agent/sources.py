"""Tools as library code names them: functions, names, HTTP requests, MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from llm.http.addresses import Network, parse_network
from tools.conf import settings
from tools.errors import InvalidTool
from tools.http.call import HttpCall
from tools.http.exchange import Limits
from tools.http.request_template import BodyKind, RequestTemplate
from tools.http.result import ReadOptions
from tools.http.secret_from_code import PlainSecret
from tools.http.validation import find_problems, header_problems, parse_locations
from tools.json_schema.schema_mistakes import EMPTY, schema_mistakes
from tools.mcp.server_spec import (
    DEFAULT_TIMEOUT,
    MAX_SERVER_NAME,
    SERVER_NAME,
    ServerSpec,
)
from tools.models import Tool
from tools.runtime_tool import NAME, RuntimeTool


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpTool:
    """A request that models may send. The arguments of a call fill the placeholders of
    the URL; the others go into the query for GET, HEAD and DELETE, else the body.

    `headers` are sent to the URL's own origin only, and may contain secrets. `places`
    are as in the admin: {"lang": "header:Accept-Language"}.
    """

    name: str
    description: str
    url: str = field(repr=False)
    method: str = "GET"
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict(EMPTY))
    places: Mapping[str, str] = field(default_factory=dict)
    body: BodyKind = "json"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    pointer: str = ""  # JSON Pointer to the part of the answer that the model receives
    networks: Collection[str] = ()  # private networks that it may reach: "10.1.0.0/16"
    timeout: float | None = None  # seconds; None for settings.TOOL_TIMEOUT
    blocking: bool = True

    def build_tool(self) -> RuntimeTool:
        """Raises InvalidTool."""
        if not NAME.match(self.name):
            raise InvalidTool(
                f"an HTTP tool is named {self.name!r}; a tool's name has up to 64"
                " letters, digits, '_' and '-', and does not begin with a digit."
            )
        template = self._template()
        seconds = settings.TOOL_TIMEOUT if self.timeout is None else self.timeout
        return RuntimeTool(
            name=self.name,
            description=self.description,
            parameters=self.parameters,
            call=HttpCall(
                name=self.name,
                definition=template,
                read_options=ReadOptions(pointer=self.pointer),
                limits=Limits(total=seconds),
                networks=_parse_networks(self.networks, self.name),
                secret_headers=_seal(self.headers),
            ),
            timeout=self.timeout,
            blocking=self.blocking,
            source=f"HTTP tool {self.name}",
        )

    def _template(self) -> RequestTemplate:
        for path, text in schema_mistakes(dict(self.parameters)):
            where = ".".join(map(str, path)) or "its parameters"
            raise InvalidTool(f"the HTTP tool {self.name!r}, {where}: {text}.")
        locations, problems = parse_locations(dict(self.places))
        problems += header_problems(dict(self.headers))
        template = RequestTemplate(
            method=self.method.upper(),
            url=self.url,
            arguments=self.parameters.get("properties") or {},
            locations=locations,
            body=self.body,
        )
        problems += [text for _, text in find_problems(template, self.parameters)]
        if problems:
            raise InvalidTool(f"the HTTP tool {self.name!r}: {problems[0]}")
        return template


@dataclass(frozen=True, slots=True, kw_only=True)
class McpServer:
    """An MCP server, all of whose tools a model may call, or those in `allowed_tools`.

    A tool's name is `label__tool`. `headers` are sent to the server's own origin only,
    and may contain secrets.
    """

    label: str
    url: str = field(repr=False)
    allowed_tools: Collection[str] | None = None  # by the server's names; None for all
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    networks: Collection[str] = ()  # private networks that it may be in: "10.1.0.0/16"
    timeout: float = DEFAULT_TIMEOUT  # seconds, for connecting and for listing

    def build_spec(self) -> ServerSpec:
        """Raises InvalidTool."""
        if not SERVER_NAME.match(self.label) or len(self.label) > MAX_SERVER_NAME:
            raise InvalidTool(
                f"an MCP server has the label {self.label!r}; a label has up to"
                f" {MAX_SERVER_NAME} letters, digits, '-' and single '_', and begins"
                " with a letter."
            )
        for problem in header_problems(dict(self.headers)):
            raise InvalidTool(f"the MCP server {self.label!r}: {problem}")
        if isinstance(self.allowed_tools, str):
            raise InvalidTool(
                f"the MCP server {self.label!r} has the allowed_tools"
                f" {self.allowed_tools!r}; write a list."
            )
        allowed = self.allowed_tools
        return ServerSpec(
            name=self.label,
            url=self.url,
            secret_headers=_seal(self.headers),
            allowed_tools=None if allowed is None else frozenset(allowed),
            networks=_parse_networks(self.networks, self.label),
            timeout=self.timeout,
        )


#: What `tools` may contain: a function, a tool, the name of a tool in code or of a row,
#: a row, or the definition of a tool that the caller or the provider runs.
ToolSource = (
    Callable[..., Any]
    | str
    | RuntimeTool
    | Tool
    | HttpTool
    | McpServer
    | Mapping[str, Any]
)


def _seal(headers: Mapping[str, str]) -> PlainSecret | None:
    return PlainSecret(orjson.dumps(dict(headers)).decode()) if headers else None


def _parse_networks(texts: Collection[str], name: str) -> tuple[Network, ...]:
    try:
        return tuple(map(parse_network, texts))
    except ValueError as exc:
        raise InvalidTool(f"the networks of {name!r}: {exc}.") from exc
