"""The tools that a turn's model may call: ours, hosted ones, and the client's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conversations.models import Turn
from conversations.names import AllBut
from conversations.presets import Preset
from conversations.steps import is_allowed, is_limited
from llm import hosted
from llm.capabilities import Capabilities
from llm.prepared import Prepared, Somebody
from llm.provider import Route
from tools.models import Offer as ToolOffer
from tools.models import Tool as ToolRow
from tools.registry import Tool

_OFFERED = Prepared[ToolRow](lambda user: ToolRow.objects.offered(Somebody(user)), -1)
_OFFERED_TO_SUPERUSERS = Prepared[ToolRow](lambda: ToolRow.objects.offered(None))


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that the model may call."""

    tools: Mapping[str, Tool] = field(default_factory=dict)  # our tools, by name
    hosted: Sequence[dict[str, Any]] = ()  # tools that the provider runs
    declared: Sequence[dict[str, Any]] = ()  # by the client: functions, hosted tools
    #: The hosted tools that staff configured for models that support them; `hosted` are
    #: those that the first model supports.
    wished: Sequence[dict[str, Any]] = ()

    @property
    def client(self) -> frozenset[str]:
        """Names of the tools that the client runs."""
        named = frozenset(t["name"] for t in self.declared if t["type"] == "function")
        return named | hosted.client_functions(self.declared)

    @property
    def definitions(self) -> list[dict[str, Any]]:
        ours = [tool.definition for tool in self.tools.values()]
        return [*ours, *self.hosted, *self.declared]

    def at(self, routes: Sequence[Route]) -> Sequence[Route]:
        """The routes, each fallback model with the hosted tools that it supports."""
        if not self.wished:
            return routes
        first, *others = routes
        beside = [*(tool.definition for tool in self.tools.values()), *self.declared]
        return [
            first,
            *(
                replace(each, hosted_tools=_taken(self.wished, each, beside=beside))
                for each in others
            ),
        ]


def offer_of(
    turn: Turn, options: Mapping[str, Any], preset: Preset | None, route: Route
) -> Offer:
    """Nothing if the turn asked for no tools, and no more than the preset allows.

    A name that the client declares is the client's tool. Of the hosted tools that staff
    declare for everybody, only those are included that the model supports.
    """
    if options.get("tool_choice") == "none":
        return Offer()
    declared = options.get("tools") or ()
    named, off = options.get("server_tools"), options.get("disabled_tools") or ()
    if named is not None and not named:
        return Offer(declared=declared)
    offered = _tools(turn)
    allowed = preset.tool_names() if preset else None
    taken = {tool.get("name") for tool in declared}

    def is_on(name: str) -> bool:
        wanted = named is None or name in named
        wanted = wanted and (allowed is None or name in allowed)
        return wanted and name not in off and name not in taken

    offer = Offer(
        tools={name: tool for name, tool in offered.tools.items() if is_on(name)},
        declared=declared,
    )
    wanted = [each for name, each in offered.hosted.items() if is_on(name)]
    taken_here = _taken(wanted, route, beside=offer.definitions)
    return replace(offer, hosted=taken_here, wished=wanted)


def _taken(
    definitions: Sequence[dict[str, Any]],
    route: Route,
    *,
    beside: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The hosted tools that the model supports."""
    can = Capabilities.read(route.capabilities)
    functions = [tool for tool in beside if not hosted.is_hosted(tool)]
    return [
        each
        for each in definitions
        if hosted.takes(
            route.endpoint.codec, can, each, model=route.model, beside=functions
        )
        is None
    ]


def _tools(turn: Turn) -> ToolOffer:
    owner = turn.conversation.owner
    if owner.is_superuser:
        return ToolOffer.of(_OFFERED_TO_SUPERUSERS.all())
    return ToolOffer.of(_OFFERED.all(owner.pk))


def allowed_tools(offer: Offer, choice: Any) -> Mapping[str, Tool]:
    if not is_limited(choice):
        return offer.tools
    return {n: tool for n, tool in offer.tools.items() if is_allowed(n, choice)}


def client_tools(turn: Turn, offer: Offer, choice: Any) -> Collection[str]:
    """For a program's request without tools of ours, all calls are the client's,
    whatever their names: as in the stateless gateway."""
    if "gateway" in turn.options and not (offer.tools or is_limited(choice)):
        return AllBut()
    if not offer.declared:
        return ()
    hosted_ones = hosted.client_functions(offer.declared)
    return hosted_ones | {name for name in offer.client if is_allowed(name, choice)}
