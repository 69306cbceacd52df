"""Turn a request's body into a `GatewayRequest`: a model and what to send to it.

`llm.wire.facades` reads the client's format. This module then fits the request to its
model: it adds the staff's default options and the server's own tools that the caller
names, and removes what only hosts of another API understand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from conversations.engine.database import Database
from conversations.gateway import routes, tokens
from conversations.gateway.dialects import Dialect, unreadable
from conversations.gateway.proofs import proven
from conversations.gateway.routes import Way
from conversations.metering import Meter
from conversations.models import AccessToken
from conversations.names import AllBut
from conversations.steps import is_allowed, is_limited
from llm import hosted
from llm.capabilities import Capabilities
from llm.errors import BadRequest
from llm.options import fit
from llm.provider import Route
from llm.wire.facades.portable import portable
from llm.wire.items import Item
from llm.wire.request import Request
from tools.declared_kinds import (
    OTHER,
    kinds_of_body,
    kinds_of_items,
    kinds_of_tools,
)
from tools.declared_tools import check_declared
from tools.registry import Tool
from tools.unattended import CODE, never_runs_unattended, unattended

OWN_TOOLS = "parley:tools"
_NO_HEADERS: Mapping[bytes, bytes] = {}
_NONE: frozenset[str] = frozenset()  # shared: an empty one takes 216 bytes

#: Fields outside our own format that are passed on to hosts of the same wire format.
_PASSED = {
    "chat": frozenset(
        {
            "chat_template_kwargs",
            "guided_choice",
            "guided_json",
            "guided_regex",
            "logit_bias",
            "min_p",
            "modalities",
            "prediction",
            "repetition_penalty",
            "top_k",
            "user",
            "web_search_options",
        }
    ),
    "messages": frozenset(
        {
            "container",
            "mcp_servers",
            "output_config",
            "service_tier",
            "thinking",
            "top_k",
        }
    ),
    "responses": frozenset(
        {"max_tool_calls", "prompt_cache_options", "prompt_cache_retention", "user"}
    ),
}
#: Options that clients send to every model alike (Anthropic's API even requires
#: `max_tokens`). They are dropped if the model does not support them.
_FITTED = (
    "frequency_penalty",
    "max_output_tokens",
    "presence_penalty",
    "reasoning",
    "seed",
    "temperature",
    "top_p",
)
_UNASKED: tuple[Any, ...] = (None, (), [], {})
_OPTIONS = {item.name for item in fields(Request)} - {
    "extra",
    "instructions",
    "in_background",
    "issuer",
    "items",
    "model",
    "prefill",
    "resumes",
    "stream",
    "tools",
}


class ToolNeedsApproval(BadRequest):
    """This tool needs a person's approval, which this request cannot wait for."""

    code, status = CODE, 403
    openai_code = "tool_needs_approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Options of this server, which a caller sets in the field `parley`."""

    receipts: bool = False  # show calls of the server's tools and their outputs
    buffer_tool_calls: bool = False
    ignore_invalid_options: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Wishes:
        """Raises BadRequest."""
        told = body.get("parley") or {}
        if not isinstance(told, Mapping):
            raise BadRequest("'parley' must be an object.", param="parley")
        known = {f"parley.{wish.name}" for wish in fields(cls)}
        for name in body:
            if name.startswith("parley.") and name not in known:
                raise BadRequest(f"{name[:64]!r} is not known.", param=name[:64])
        wishes = {}
        for wish in fields(cls):
            value = told.get(wish.name, body.get(f"parley.{wish.name}"))
            if value is not None and not isinstance(value, bool):
                where = f"parley.{wish.name}"
                raise BadRequest(f"{where!r} must be true or false.", param=where)
            wishes[wish.name] = bool(value)
        return cls(**wishes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request that was parsed, and checked against its token's limits."""

    dialect: Dialect
    token: AccessToken
    body: Mapping[str, Any]  # without the options in `parley`
    wishes: Wishes
    way: Way
    request: Request
    own_tools: Mapping[str, Tool] = field(default_factory=dict)
    meter: Meter | None = None  # counts what the request costs the token
    limits: Mapping[str, str] = field(default_factory=dict)  # rate limit headers
    #: Options that were dropped because this model does not support them.
    degraded: Sequence[str] = ()

    @property
    def headers(self) -> dict[str, str]:
        """The answer's extra headers: rate limits, and options that were dropped."""
        told = ", ".join(self.degraded).replace("→", "->")  # headers are ASCII
        return {**self.limits, **({"x-parley-degraded": told} if told else {})}

    @property
    def max_tool_calls(self) -> int | None:
        """The limit on server tool calls; only Responses has a field for it."""
        told = self.body.get("max_tool_calls") if self.dialect.wire_is_ours else None
        return told if isinstance(told, int) else None

    @property
    def stops_here(self) -> bool:
        """True if this server must search the text for the stop sequences.

        It must if the model does not support them, or if the client's API reports which
        one ended the answer.
        """
        if not self.request.stop:
            return False
        can = Capabilities.read(self.route.capabilities)
        return self.dialect.names_stops or can.stop is False

    @property
    def route(self) -> Route:
        return self.way.first

    @property
    def is_spoken_there(self) -> bool:
        """True if the model's host speaks the client's own API."""
        return speaks(self.dialect, self.route)

    @property
    def client_tools(self) -> frozenset[str]:
        """Names of the functions that the client runs."""
        choice = self.request.tool_choice
        named = {str(tool.get("name")) for tool in self.request.tools}
        theirs = named - self.own_tools.keys()
        return frozenset(name for name in theirs if is_allowed(name, choice))

    @property
    def server_tools(self) -> Collection[str]:
        """Names of the functions that this server runs."""
        if is_limited(self.request.tool_choice):
            return AllBut(self.client_tools)
        return self.own_tools

    @property
    def custom_tools(self) -> frozenset[str]:
        """Names of the tools that take free text instead of JSON arguments."""
        custom = [tool for tool in self.request.tools if tool["type"] == "custom"]
        return frozenset(str(tool.get("name")) for tool in custom) if custom else _NONE


async def read(
    body: dict[str, Any],
    dialect: Dialect,
    token: AccessToken,
    database: Database,
    headers: Mapping[bytes, bytes] = _NO_HEADERS,
) -> Asked:
    """Parse `body` and resolve its model and tools. Raises LLMError."""
    dialect.check(body, _own_names(body))
    wishes = Wishes.of(body)
    way = await routes.way_to(body["model"], token, database)
    way = tokens.permitted(token, body["model"], way)
    if dialect.wants_older(body, headers):
        way = routes.in_older_version(way)
    names, tools, left = _divided(body.get("tools"), dialect, way.first)
    own = await _chosen(names, token, database)
    if body.get("background") is not True:  # those can wait for approval
        left += _check_attended(names, own)
        own = {name: unattended(tool) for name, tool in own.items()}
    plain = {
        name: value for name, value in body.items() if not name.startswith("parley")
    }
    if "tools" in plain:
        plain["tools"] = tools
    try:
        request = dialect.request_of(plain, way.first)
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise unreadable(exc) from exc
    if dialect.wire_is_ours:
        items = proven(request.items, plain.get("input"), token.user_id)
        request = replace(request, items=items)
    request = _addressed(request, dialect, way.first)
    await _check_kinds(body, request, token, database)
    request, degraded = _fitted(request, dialect, way.first)
    # A function that the client declares replaces a server tool of the same name.
    taken = {tool.get("name") for tool in request.tools}
    own = {name: tool for name, tool in own.items() if name not in taken}
    offered = [*request.tools, *(tool.definition for tool in own.values())]
    request = _offering(request, offered)
    return Asked(
        dialect=dialect,
        token=token,
        body=plain,
        wishes=wishes,
        way=way,
        request=request,
        own_tools=own,
        degraded=[*left, *degraded],
    )


# Tools


def _own_names(body: Mapping[str, Any]) -> Collection[str]:
    """The server tools that a body names; `tool_choice` may name them too."""
    tools = body.get("tools")
    names: Collection[str] = ()
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and tool.get("type") == OWN_TOOLS:
            given = tool.get("names")
            if not isinstance(given, list):
                return AllBut()
            names = [*names, *given]
    return names


def _divided(
    tools: Any, dialect: Dialect, route: Route
) -> tuple[list[str] | None, list[dict[str, Any]], list[str]]:
    """Names of server tools (None for all), the client's tools, and unsupported types.

    Agents declare every tool that they know, so unsupported ones are skipped.
    """
    names: list[str] | None = []
    theirs, left = [], []
    functions = [tool for tool in tools or () if _is_function(tool)]
    for tool in tools or ():
        if tool.get("type") == OWN_TOOLS:
            names = _named(tool, names)
        elif _is_function(tool) or _can_be_given(tool, dialect, route, functions):
            theirs.append(tool)
        else:
            left.append(f"tools ({tool['type']})")
    return names, theirs, left


async def _check_kinds(
    body: Mapping[str, Any], request: Request, token: AccessToken, database: Database
) -> None:
    """Raises ToolNotAllowed.

    A tool of unknown kind counts only if it reaches the model; a skipped one does not.
    """
    declared = [told for told in kinds_of_body(body) if told[0] != OTHER]
    declared += kinds_of_items(body.get("input"))
    declared += kinds_of_tools(request.tools)
    if declared:
        check_declared(declared, await routes.declarable_kinds(token, database))


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") in (None, "function", "custom")


def _can_be_given(
    tool: Mapping[str, Any],
    dialect: Dialect,
    route: Route,
    functions: Sequence[dict[str, Any]],
) -> bool:
    if speaks(dialect, route):
        beside: Sequence[dict[str, Any]] = ()  # the host itself checks the combination
    elif dialect.wire_is_ours and hosted.kind_of(tool):
        beside = functions
    else:
        return False
    can, codec = Capabilities.read(route.capabilities), route.endpoint.codec
    return hosted.takes(codec, can, tool, model=route.model, beside=beside) is None


def _named(tool: Mapping[str, Any], before: list[str] | None) -> list[str] | None:
    names = tool.get("names")
    if names is None or before is None:
        return None
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise BadRequest("'names' must be a list of names of tools.", param="tools")
    return [*before, *names]


async def _chosen(
    names: Sequence[str] | None, token: AccessToken, database: Database
) -> dict[str, Tool]:
    """Raises BadRequest for a tool that does not exist or that the user may not use."""
    if names is not None and not names:
        return {}
    available = await routes.own_tools(token, database)
    for name in names or ():
        if name not in available:
            raise BadRequest(f"There is no tool {name[:64]!r} for you.", param="tools")
    wanted = available if names is None else names
    return {name: available[name] for name in wanted}


def _check_attended(names: Sequence[str] | None, own: Mapping[str, Tool]) -> list[str]:
    """Entries of the header for tools that need approval, so their calls will fail.

    Raises ToolNeedsApproval if the request names such a tool.
    """
    refused = [name for name, tool in own.items() if never_runs_unattended(tool)]
    for name in refused:
        if name in (names or ()):
            raise ToolNeedsApproval(
                f"The tool {name!r} needs a person's approval, which this request"
                " cannot wait for; set 'store' and 'background' to true.",
                param="tools",
            )
    return [f"tools ({name}: {CODE})" for name in refused]


def _offering(request: Request, offered: Sequence[dict[str, Any]]) -> Request:
    """The request with the tools `offered`; without any, `tool_choice` is removed.

    With `tool_choice` "none" no tool is sent, unless the history has calls: the model
    needs the definitions to understand them.
    """
    called = any(item.get("type") == "function_call" for item in request.items)
    if request.tool_choice == "none" and not called:
        offered = ()
    if offered:
        return replace(request, tools=offered)
    if (*request.tools, request.tool_choice, request.parallel_tool_calls) == (
        None,
    ) * 2:
        return request  # nothing changes, and a copy costs more than the check
    return replace(request, tools=(), tool_choice=None, parallel_tool_calls=None)


# The request


def speaks(dialect: Dialect, route: Route) -> bool:
    """True if the model's host speaks the client's own API."""
    return route.endpoint.codec.name.startswith(dialect.wire)


def _addressed(request: Request, dialect: Dialect, route: Route) -> Request:
    if not speaks(dialect, route):
        request, _ = portable(request, hosted_tools=AllBut())  # already removed
    changed: dict[str, Any] = {
        name: value
        for name, value in route.defaults.items()
        if name in _OPTIONS and value is not None and getattr(request, name) in _UNASKED
    }
    if request.max_output_tokens is None and "max_output_tokens" not in changed:
        changed["max_output_tokens"] = route.max_output_tokens
    passed = _PASSED[dialect.name]
    extra = dict(route.defaults.get("extra") or {})
    extra |= {n: v for n, v in request.extra.items() if n in passed}
    items = request.items
    if route.endpoint.codec.name.startswith("openai_chat"):
        items = [_in_one_piece(item) for item in items]
    return replace(
        request,
        items=items,
        model=route.model,
        issuer=route.endpoint.issuer(route.model),
        extra=extra,
        **changed,
    )


def _in_one_piece(item: Item) -> Item:
    """Join text parts, because hosts of Chat Completions put newlines between them."""
    parts = item.get("content")
    if item.get("role") == "assistant" or not isinstance(parts, list):
        return item
    if len(parts) < 2 or any(part.get("type") != "input_text" for part in parts):
        return item
    text = "".join(part["text"] for part in parts)
    return {**item, "content": [{"type": "input_text", "text": text}]}


def _fitted(
    request: Request, dialect: Dialect, route: Route
) -> tuple[Request, Sequence[str]]:
    """The request without options that the model does not support, and their names.

    Clients of another API send such options by habit. A client of the host's own API
    gets the host's error instead.
    """
    if speaks(dialect, route):
        return request, ()
    asked = {name: getattr(request, name) for name in _FITTED}
    fitted = fit(
        Request(model=request.model, items=(), **asked),
        Capabilities.read(route.capabilities),
        model_name=route.name,
        ignore_invalid=True,
    )
    kept = {name: getattr(fitted.request, name) for name in _FITTED}
    return (request if kept == asked else replace(request, **kept)), fitted.dropped
