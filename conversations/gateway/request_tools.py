"""The tools of a request's body: the server's own, the client's, and skipped ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conversations.engine.database.executor import Database
from conversations.gateway import model_resolution
from conversations.gateway.dialects import Dialect
from conversations.gateway.gateway_request import speaks_dialect
from conversations.models import AccessToken
from conversations.turns.all_except import AllExcept
from llm.adaptation import hosted_tools
from llm.errors import BadRequest
from llm.provider import Route
from llm.wire.facades.messages_request import SEARCH_NAME, search_of
from llm.wire.request import Request, is_namespace, members_of
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
from tools.runtime_tool import RuntimeTool

OWN_TOOLS = "parley:tools"


class ToolNeedsApproval(BadRequest):
    """This tool needs a person's approval, which this request cannot wait for."""

    code, status = ERROR_CODE, 403
    openai_code = "tool_needs_approval"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTools:
    """The tools of a body."""

    own: Mapping[str, RuntimeTool] = field(default_factory=dict)  # of this server
    of_client: Sequence[dict[str, Any]] = ()
    skipped: Sequence[str] = ()  # entries of the header


NO_TOOLS = RequestTools()


async def read_tools(
    body: Mapping[str, Any],
    dialect: Dialect,
    route: Route,
    token: AccessToken,
    database: Database,
) -> RequestTools:
    """Raises BadRequest, ToolNeedsApproval."""
    names, client_tools, skipped = split_tools(body["tools"], dialect, route)
    _refuse_skipped(body, skipped, route)
    own = await _choose_tools(names, token, database)
    if body.get("background") is not True:  # those can wait for approval
        skipped += _check_approvals(names, own)
        own = {name: without_approval(tool) for name, tool in own.items()}
    return RequestTools(own=own, of_client=client_tools, skipped=skipped)


def own_names(tools: Any) -> Collection[str]:
    """The server tools that a body names; `tool_choice` may name them too."""
    names: Collection[str] = ()
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and tool.get("type") == OWN_TOOLS:
            listed = tool.get("names")
            if not isinstance(listed, list):
                return AllExcept()
            names = [*names, *listed]
    return names


def without_unsupported(
    body: Mapping[str, Any], dialect: Dialect, route: Route
) -> tuple[Mapping[str, Any], list[str]]:
    """The body without tools that the model is known to lack, and entries of the
    header for them."""
    tools = body.get("tools")
    if not isinstance(tools, list) or all(map(_is_plain, tools)):
        return body, []
    if not speaks_dialect(dialect, route):
        return body, []
    can = route.capabilities  # the host itself knows which forms it takes
    lost = [t for t in tools if not _is_plain(t) and hosted_tools.is_lacking(can, t)]
    if not lost:
        return body, []
    entries = [f"tools ({tool['type']})" for tool in lost]
    sent = [tool for tool in tools if not any(tool is each for each in lost)]
    return {**body, "tools": sent}, entries


def _is_plain(tool: Any) -> bool:
    """Whether it is a function, or nothing that could be judged here."""
    return (
        not isinstance(tool, dict)
        or not isinstance(tool.get("type"), str)
        or _is_function(tool)
    )


def split_tools(
    tools: Any, dialect: Dialect, route: Route
) -> tuple[list[str] | None, list[dict[str, Any]], list[str]]:
    """Names of server tools (None for all), the client's tools, and unsupported types.

    Agents declare every tool that they know, so unsupported ones are skipped.
    """
    names: list[str] | None = []
    client_tools, skipped = [], []
    functions = [tool for tool in tools or () if _is_function(tool)]
    for tool in tools or ():
        search = None
        if dialect.declares_searches and not speaks_dialect(dialect, route):
            search = search_of(tool)
        if tool.get("type") == OWN_TOOLS:
            names = _add_names(tool, names)
        elif _is_function(tool) or _is_supported(tool, dialect, route, functions):
            client_tools.append(tool)
        elif search and _takes_search(search, route, functions):
            client_tools.append(search)
        else:
            skipped.append(f"tools ({tool['type']})")
    return names, client_tools, skipped


async def check_kinds(
    body: Mapping[str, Any],
    sent_tools: Sequence[dict[str, Any]] | None,
    token: AccessToken,
    database: Database,
) -> None:
    """Raises ToolNotAllowed.

    A tool of unknown kind counts only if it reaches the model; a skipped one does not.
    Without `sent_tools` all of the body do.
    """
    declared = list(kinds_of_body(body))
    if sent_tools is not None:
        declared = [entry for entry in declared if entry[0] != OTHER]
        declared += kinds_of_tools(sent_tools)
    declared += kinds_of_items(body.get("input"))
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
    elif dialect.is_open_responses and is_namespace(tool):
        return bool(members_of(tool))
    elif dialect.is_open_responses and hosted_tools.kind_of(tool):
        beside = functions
    else:
        return False
    return hosted_tools.why_route_refuses(route, tool, beside=beside) is None


def _takes_search(
    search: Mapping[str, Any], route: Route, functions: Sequence[dict[str, Any]]
) -> bool:
    beside = [
        {
            "type": "function",
            "name": each["name"],
            "parameters": each.get("input_schema"),
        }
        for each in functions
    ]
    why = hosted_tools.why_route_refuses(route, search, beside=beside)
    return why is None


def _refuse_skipped(
    body: Mapping[str, Any], skipped: Collection[str], route: Route
) -> None:
    """Raise BadRequest if the model has to call a tool that it lacks: it would write
    results of its own invention. Claude Code searches so."""
    choice = body.get("tool_choice")
    name = choice.get("name") if isinstance(choice, Mapping) else None
    for tool in body["tools"] if name else ():
        if tool.get("name") == name and f"tools ({tool.get('type')})" in skipped:
            raise BadRequest(
                f"The provider of the model {route.name!r} runs no tool"
                f" {tool['type']!r} for it, which 'tool_choice' requires; choose"
                " another model.",
                param="tool_choice",
            )


def with_search_choice(request: Request, route: Route) -> Request:
    """The request with the choice of Anthropic's search as its host takes it."""
    choice = request.tool_choice
    searches = any(tool.get("type") == "web_search" for tool in request.tools)
    if not searches or not isinstance(choice, Mapping):
        return request
    names = {tool.get("name") for tool in request.tools}
    if choice.get("name") != SEARCH_NAME or SEARCH_NAME in names:
        return request
    can_name = route.endpoint.codec.name.startswith("openai_responses")
    return replace(request, tool_choice={"type": "web_search"} if can_name else None)


def _add_names(tool: Mapping[str, Any], before: list[str] | None) -> list[str] | None:
    names = tool.get("names")
    if names is None or before is None:
        return None
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise BadRequest("'names' must be a list of tool names.", param="tools")
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
            raise BadRequest(
                f"There is no tool {name[:64]!r} that you may use.", param="tools"
            )
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
