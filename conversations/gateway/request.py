"""Turn a request's body into a `GatewayRequest`: a model and what to send to it.

`llm.wire.facades` reads the client's format. This module then fits the request to its
model: it adds the staff's default options and the server's own tools that the caller
names, and removes what only hosts of another API understand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from conversations.engine.database.executor import Database
from conversations.engine.metering import Meter
from conversations.gateway import model_resolution, token_access
from conversations.gateway.dialects import Dialect, unreadable_body
from conversations.gateway.encrypted_reasoning import restore_proofs
from conversations.gateway.model_resolution import ModelChain
from conversations.models import AccessToken
from conversations.turns.name_sets import AllExcept
from conversations.turns.steps import is_allowed, is_limited
from llm.adaptation import hosted_tools
from llm.capabilities import Capabilities
from llm.errors import BadRequest
from llm.options import fit
from llm.provider import Route
from llm.wire.facades.portable_request import portable
from llm.wire.items import Item
from llm.wire.request import Request
from tools.execution.without_approval import (
    ERROR_CODE,
    always_needs_approval,
    without_approval,
)
from tools.hosted.declared_kinds import (
    OTHER,
    kinds_of_body,
    kinds_of_items,
    kinds_of_tools,
)
from tools.models.declared_tool import check_declared
from tools.registry import RuntimeTool

OWN_TOOLS = "parley:tools"
_NO_HEADERS: Mapping[bytes, bytes] = {}
_NONE: frozenset[str] = frozenset()  # shared: an empty one takes 216 bytes

#: Fields outside our own format that are passed on to hosts of the same wire format.
_PASSED_THROUGH = {
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
_DROPPABLE_OPTIONS = (
    "frequency_penalty",
    "max_output_tokens",
    "presence_penalty",
    "reasoning",
    "seed",
    "temperature",
    "top_p",
)
_UNSET: tuple[Any, ...] = (None, (), [], {})
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

    code, status = ERROR_CODE, 403
    openai_code = "tool_needs_approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParleyOptions:
    """Options of this server, which a caller sets in the field `parley`."""

    receipts: bool = False  # show calls of the server's tools and their outputs
    buffer_tool_calls: bool = False
    ignore_invalid_options: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ParleyOptions:
        """Raises BadRequest."""
        section = body.get("parley") or {}
        if not isinstance(section, Mapping):
            raise BadRequest("'parley' must be an object.", param="parley")
        known = {f"parley.{option.name}" for option in fields(cls)}
        for name in body:
            if name.startswith("parley.") and name not in known:
                raise BadRequest(f"{name[:64]!r} is not known.", param=name[:64])
        values = {}
        for option in fields(cls):
            value = section.get(option.name, body.get(f"parley.{option.name}"))
            if value is not None and not isinstance(value, bool):
                where = f"parley.{option.name}"
                raise BadRequest(f"{where!r} must be true or false.", param=where)
            values[option.name] = bool(value)
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRequest:
    """A request that was parsed, and checked against its token's limits."""

    dialect: Dialect
    token: AccessToken
    body: Mapping[str, Any]  # without the options in `parley`
    parley_options: ParleyOptions
    chain: ModelChain
    request: Request
    own_tools: Mapping[str, RuntimeTool] = field(default_factory=dict)
    meter: Meter | None = None  # counts what the request costs the token
    limits: Mapping[str, str] = field(default_factory=dict)  # rate limit headers
    #: Options that were dropped because this model does not support them.
    degraded: Sequence[str] = ()

    @property
    def headers(self) -> dict[str, str]:
        """The answer's extra headers: rate limits, and options that were dropped."""
        names = ", ".join(self.degraded).replace("→", "->")  # headers are ASCII
        return {**self.limits, **({"x-parley-degraded": names} if names else {})}

    @property
    def max_tool_calls(self) -> int | None:
        """The limit on server tool calls; only Responses has a field for it."""
        limit = (
            self.body.get("max_tool_calls") if self.dialect.is_open_responses else None
        )
        return limit if isinstance(limit, int) else None

    @property
    def filters_stop_sequences(self) -> bool:
        """True if this server must search the text for the stop sequences.

        It must if the model does not support them, or if the client's API reports which
        one ended the answer.
        """
        if not self.request.stop:
            return False
        capabilities = Capabilities.from_dict(self.route.capabilities)
        return self.dialect.reports_stop_sequence or capabilities.stop is False

    @property
    def route(self) -> Route:
        return self.chain.first

    @property
    def host_speaks_dialect(self) -> bool:
        """True if the model's host speaks the client's own API."""
        return speaks_dialect(self.dialect, self.route)

    @property
    def client_tools(self) -> frozenset[str]:
        """Names of the functions that the client runs."""
        choice = self.request.tool_choice
        named = {str(tool.get("name")) for tool in self.request.tools}
        client_names = named - self.own_tools.keys()
        return frozenset(name for name in client_names if is_allowed(name, choice))

    @property
    def server_tools(self) -> Collection[str]:
        """Names of the functions that this server runs."""
        if is_limited(self.request.tool_choice):
            return AllExcept(self.client_tools)
        return self.own_tools

    @property
    def custom_tools(self) -> frozenset[str]:
        """Names of the tools that take free text instead of JSON arguments."""
        custom = [tool for tool in self.request.tools if tool["type"] == "custom"]
        return frozenset(str(tool.get("name")) for tool in custom) if custom else _NONE


async def read_request(
    body: dict[str, Any],
    dialect: Dialect,
    token: AccessToken,
    database: Database,
    headers: Mapping[bytes, bytes] = _NO_HEADERS,
) -> GatewayRequest:
    """Parse `body` and resolve its model and tools. Raises LLMError."""
    dialect.check(body, _own_names(body))
    parley_options = ParleyOptions.of(body)
    chain = await model_resolution.find_chain(body["model"], token, database)
    chain = token_access.restrict_chain(token, body["model"], chain)
    if dialect.wants_older_version(body, headers):
        chain = model_resolution.use_older_version(chain)
    names, tools, skipped_tools = _split_tools(body.get("tools"), dialect, chain.first)
    own_tools = await _choose_tools(names, token, database)
    if body.get("background") is not True:  # those can wait for approval
        skipped_tools += _check_approvals(names, own_tools)
        own_tools = {name: without_approval(tool) for name, tool in own_tools.items()}
    model_body = {
        name: value for name, value in body.items() if not name.startswith("parley")
    }
    if "tools" in model_body:
        model_body["tools"] = tools
    try:
        request = dialect.request_of(model_body, chain.first)
    except (LookupError, TypeError, ValueError, AttributeError) as exc:
        raise unreadable_body(exc) from exc
    if dialect.is_open_responses:
        items = restore_proofs(request.items, model_body.get("input"), token.user_id)
        request = replace(request, items=items)
    request = _address_to_route(request, dialect, chain.first)
    await _check_kinds(body, request, token, database)
    request, degraded = _drop_unsupported_options(request, dialect, chain.first)
    # A function that the client declares replaces a server tool of the same name.
    client_names = {tool.get("name") for tool in request.tools}
    own_tools = {
        name: tool for name, tool in own_tools.items() if name not in client_names
    }
    offered = [*request.tools, *(tool.definition for tool in own_tools.values())]
    request = _with_tools(request, offered)
    return GatewayRequest(
        dialect=dialect,
        token=token,
        body=model_body,
        parley_options=parley_options,
        chain=chain,
        request=request,
        own_tools=own_tools,
        degraded=[*skipped_tools, *degraded],
    )


# Tools


def _own_names(body: Mapping[str, Any]) -> Collection[str]:
    """The server tools that a body names; `tool_choice` may name them too."""
    tools = body.get("tools")
    names: Collection[str] = ()
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and tool.get("type") == OWN_TOOLS:
            listed = tool.get("names")
            if not isinstance(listed, list):
                return AllExcept()
            names = [*names, *listed]
    return names


def _split_tools(
    tools: Any, dialect: Dialect, route: Route
) -> tuple[list[str] | None, list[dict[str, Any]], list[str]]:
    """Names of server tools (None for all), the client's tools, and unsupported types.

    Agents declare every tool that they know, so unsupported ones are skipped.
    """
    names: list[str] | None = []
    client_tools, skipped = [], []
    functions = [tool for tool in tools or () if _is_function(tool)]
    for tool in tools or ():
        if tool.get("type") == OWN_TOOLS:
            names = _add_names(tool, names)
        elif _is_function(tool) or _is_supported(tool, dialect, route, functions):
            client_tools.append(tool)
        else:
            skipped.append(f"tools ({tool['type']})")
    return names, client_tools, skipped


async def _check_kinds(
    body: Mapping[str, Any], request: Request, token: AccessToken, database: Database
) -> None:
    """Raises ToolNotAllowed.

    A tool of unknown kind counts only if it reaches the model; a skipped one does not.
    """
    declared = [entry for entry in kinds_of_body(body) if entry[0] != OTHER]
    declared += kinds_of_items(body.get("input"))
    declared += kinds_of_tools(request.tools)
    if declared:
        check_declared(
            declared, await model_resolution.declarable_kinds(token, database)
        )


def _is_function(tool: Mapping[str, Any]) -> bool:
    return tool.get("type") in (None, "function", "custom")


def _is_supported(
    tool: Mapping[str, Any],
    dialect: Dialect,
    route: Route,
    functions: Sequence[dict[str, Any]],
) -> bool:
    if speaks_dialect(dialect, route):
        beside: Sequence[dict[str, Any]] = ()  # the host itself checks the combination
    elif dialect.is_open_responses and hosted_tools.kind_of(tool):
        beside = functions
    else:
        return False
    capabilities, codec = (
        Capabilities.from_dict(route.capabilities),
        route.endpoint.codec,
    )
    return (
        hosted_tools.why_unsupported(
            codec, capabilities, tool, model=route.model, beside=beside
        )
        is None
    )


def _add_names(tool: Mapping[str, Any], before: list[str] | None) -> list[str] | None:
    names = tool.get("names")
    if names is None or before is None:
        return None
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise BadRequest("'names' must be a list of names of tools.", param="tools")
    return [*before, *names]


async def _choose_tools(
    names: Sequence[str] | None, token: AccessToken, database: Database
) -> dict[str, RuntimeTool]:
    """Raises BadRequest for a tool that does not exist or that the user may not use."""
    if names is not None and not names:
        return {}
    available = await model_resolution.own_tools(token, database)
    for name in names or ():
        if name not in available:
            raise BadRequest(f"There is no tool {name[:64]!r} for you.", param="tools")
    wanted = available if names is None else names
    return {name: available[name] for name in wanted}


def _check_approvals(
    names: Sequence[str] | None, own: Mapping[str, RuntimeTool]
) -> list[str]:
    """Entries of the header for tools that need approval, so their calls will fail.

    Raises ToolNeedsApproval if the request names such a tool.
    """
    refused = [name for name, tool in own.items() if always_needs_approval(tool)]
    for name in refused:
        if name in (names or ()):
            raise ToolNeedsApproval(
                f"The tool {name!r} needs a person's approval, which this request"
                " cannot wait for; set 'store' and 'background' to true.",
                param="tools",
            )
    return [f"tools ({name}: {ERROR_CODE})" for name in refused]


def _with_tools(request: Request, offered: Sequence[dict[str, Any]]) -> Request:
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


def speaks_dialect(dialect: Dialect, route: Route) -> bool:
    """True if the model's host speaks the client's own API."""
    return route.endpoint.codec.name.startswith(dialect.codec_prefix)


def _address_to_route(request: Request, dialect: Dialect, route: Route) -> Request:
    if not speaks_dialect(dialect, route):
        request, _ = portable(request, hosted_tools=AllExcept())  # already removed
    changed: dict[str, Any] = {
        name: value
        for name, value in route.defaults.items()
        if name in _OPTIONS and value is not None and getattr(request, name) in _UNSET
    }
    if request.max_output_tokens is None and "max_output_tokens" not in changed:
        changed["max_output_tokens"] = route.max_output_tokens
    passed_fields = _PASSED_THROUGH[dialect.name]
    extra = dict(route.defaults.get("extra") or {})
    extra |= {n: v for n, v in request.extra.items() if n in passed_fields}
    items = request.items
    if route.endpoint.codec.name.startswith("openai_chat"):
        items = [_join_text_parts(item) for item in items]
    return replace(
        request,
        items=items,
        model=route.model,
        issuer=route.endpoint.issuer(route.model),
        extra=extra,
        **changed,
    )


def _join_text_parts(item: Item) -> Item:
    """Join text parts, because hosts of Chat Completions put newlines between them."""
    parts = item.get("content")
    if item.get("role") == "assistant" or not isinstance(parts, list):
        return item
    if len(parts) < 2 or any(part.get("type") != "input_text" for part in parts):
        return item
    text = "".join(part["text"] for part in parts)
    return {**item, "content": [{"type": "input_text", "text": text}]}


def _drop_unsupported_options(
    request: Request, dialect: Dialect, route: Route
) -> tuple[Request, Sequence[str]]:
    """The request without options that the model does not support, and their names.

    Clients of another API send such options by habit. A client of the host's own API
    gets the host's error instead.
    """
    if speaks_dialect(dialect, route):
        return request, ()
    options = {name: getattr(request, name) for name in _DROPPABLE_OPTIONS}
    fitted = fit(
        Request(model=request.model, items=(), **options),
        Capabilities.from_dict(route.capabilities),
        model_name=route.name,
        ignore_invalid=True,
    )
    fitted_options = {
        name: getattr(fitted.request, name) for name in _DROPPABLE_OPTIONS
    }
    return (
        request if fitted_options == options else replace(request, **fitted_options)
    ), fitted.dropped
