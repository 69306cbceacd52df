"""The tools that a turn's model may call: Parley's, hosted ones, and the client's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conversations.engine.loading.tool_rate_limit import limit_calls
from conversations.models import Turn
from conversations.models.preset import Preset
from conversations.turns.all_except import AllExcept
from llm.adaptation import hosted_tools as hosted
from llm.db.statements import CompiledQuery
from llm.db.user_parameter import UserParameter
from llm.provider import Route
from llm.wire.request import single_tools
from tools.loop.steps import is_allowed, is_limited
from tools.models import PermittedTools
from tools.models import Tool as ToolRow
from tools.models.tool import RELATED_ROWS
from tools.registry import RuntimeTool

_TOOLS_OF_USER = CompiledQuery[ToolRow](
    lambda user: ToolRow.objects.rows_for(UserParameter(user)), -1, related=RELATED_ROWS
)
_TOOLS_OF_SUPERUSERS = CompiledQuery[ToolRow](
    lambda: ToolRow.objects.rows_for(None), related=RELATED_ROWS
)


@dataclass(frozen=True, slots=True)
class AvailableTools:
    """The tools that the model may call."""

    tools: Mapping[str, RuntimeTool] = field(default_factory=dict)  # our tools, by name
    hosted: Sequence[dict[str, Any]] = ()  # tools that the provider runs
    declared: Sequence[dict[str, Any]] = ()  # by the client: functions, hosted tools
    #: The hosted tools that staff configured for models that support them; `hosted` are
    #: those that the first model supports.
    hosted_candidates: Sequence[dict[str, Any]] = ()

    @property
    def client(self) -> frozenset[str]:
        """Names of the tools that the client runs."""
        tools = single_tools(self.declared)
        named = frozenset(t["name"] for t in tools if t["type"] == "function")
        return named | hosted.client_functions(self.declared)

    @property
    def definitions(self) -> list[dict[str, Any]]:
        own = [tool.definition for tool in self.tools.values()]
        return [*own, *self.hosted, *self.declared]

    def adapt_routes(self, routes: Sequence[Route]) -> Sequence[Route]:
        """The routes, each fallback model with the hosted tools that it supports."""
        first, *others = routes
        beside = [*(tool.definition for tool in self.tools.values()), *self.declared]
        return [
            first,
            *(
                replace(
                    each,
                    hosted_tools=_select_supported(
                        self.hosted_candidates, each, beside=beside
                    ),
                )
                for each in others
            ),
        ]


def load_available_tools(
    turn: Turn,
    options: Mapping[str, Any],
    preset: Preset | None,
    route: Route,
    unwanted: Collection[str] = (),
) -> AvailableTools:
    """Nothing if the turn asked for no tools, and no more than the preset allows.
    `unwanted` are names of our tools that the user has switched off for all turns.

    A name that the client declares is the client's tool. Of the hosted tools that staff
    declare for everybody, only those are included that the model supports.
    """
    if options.get("tool_choice") == "none":
        return AvailableTools()
    declared = options.get("tools") or ()
    named, off = options.get("server_tools"), options.get("disabled_tools") or ()
    if named is not None and not named:
        return AvailableTools(declared=declared)
    offered = permitted_tools(turn)
    allowed = preset.tool_names() if preset else None
    tools_of_client = single_tools(declared) if declared else ()
    declared_names = {tool.get("name") for tool in tools_of_client}

    def is_on(name: str) -> bool:
        wanted = (named is None or name in named) and name not in unwanted
        wanted = wanted and offered.is_allowed(name, allowed)
        return wanted and name not in off and name not in declared_names

    available = AvailableTools(
        tools={
            name: limit_calls(tool, turn.actor) if tool.calls_per_minute else tool
            for name, tool in offered.tools.items()
            if is_on(name)
        },
        declared=declared,
    )
    wanted = [each for name, each in offered.hosted.items() if is_on(name)]
    if not wanted:
        return available
    supported = _select_supported(wanted, route, beside=available.definitions)
    return replace(available, hosted=supported, hosted_candidates=wanted)


def _select_supported(
    definitions: Sequence[dict[str, Any]],
    route: Route,
    *,
    beside: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The hosted tools that the model supports."""
    functions = [tool for tool in beside if not hosted.is_hosted(tool)]
    return [
        each
        for each in definitions
        if hosted.why_route_refuses(route, each, beside=functions) is None
    ]


def permitted_tools(turn: Turn) -> PermittedTools:
    """The tools of the turn's user, as far as the turn's access token permits them
    now."""
    user, token = turn.actor, turn.access_token
    if user.is_superuser:
        found = PermittedTools.from_rows(_TOOLS_OF_SUPERUSERS.all_shared())
    else:
        found = PermittedTools.from_rows(_TOOLS_OF_USER.all_shared(user.pk))
    if token is not None and token.allowed_tools:
        found = found.limited_to(token.tool_names)
    return found


def filter_tools(available: AvailableTools, choice: Any) -> Mapping[str, RuntimeTool]:
    if not is_limited(choice):
        return available.tools
    return {n: tool for n, tool in available.tools.items() if is_allowed(n, choice)}


def client_tools(turn: Turn, available: AvailableTools, choice: Any) -> Collection[str]:
    """Names of the tools that the client runs.

    They are all names for a gateway request without server tools, as in the stateless
    gateway.
    """
    if "gateway" in turn.options and not (available.tools or is_limited(choice)):
        return AllExcept()
    if not available.declared:
        return ()
    hosted_ones = hosted.client_functions(available.declared)
    return hosted_ones | {name for name in available.client if is_allowed(name, choice)}
