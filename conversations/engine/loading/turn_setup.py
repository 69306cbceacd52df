"""What a turn's model, preset, conversation and user determine, before its items are
read: its routes, options and tools, and the template of its requests, with what its
response repeats of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from conversations.access.admission import check_model
from conversations.access.limits import applicable
from conversations.access.limits.applicable import Applied, limits_of
from conversations.engine.loading import pooled_routes, preset_limits
from conversations.engine.loading.available_tools import (
    AvailableTools,
    load_available_tools,
)
from conversations.engine.loading.turn_context import TurnContext
from conversations.engine.metering import Meter
from conversations.models import Turn
from conversations.models.item import CONTINUES
from conversations.models.preset import Preset, PresetNotAvailable
from conversations.models.turn import POOL
from conversations.models.user_settings import UserSettings
from conversations.turns.history import ContextBlock, History, render_prompt
from llm import router
from llm.db.statements import CompiledRows
from llm.db.user_parameter import UserParameter
from llm.errors import ModelNotAvailable
from llm.generation.request_builder import RequestBuilder
from llm.models import LanguageModel
from llm.provider import Route
from llm.wire.items import Item as ItemPayload
from llm.wire.items import is_compaction
from llm.wire.request import Request
from tools.loop.steps import choice_after_calls

_PERMITTED = CompiledRows(
    lambda pk, user: (
        LanguageModel.objects.available_to(UserParameter(user))
        .filter(pk=pk)
        .values_list("pk")
    ),
    -1,
    -2,
)
_HEADING = "The user's own instructions, for all conversations:"
MEMORY_TOOLS = frozenset({"remember", "recall", "forget"})


@dataclass(frozen=True, slots=True)
class UserWishes:
    """What a turn's user wants of every model: own instructions, and memory or none."""

    instructions: str = ""  # with their heading
    unwanted_tools: frozenset[str] = frozenset()


NO_WISHES = UserWishes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the turn's model, preset, conversation and user determine."""

    preset: Preset | None
    route: Route
    routes: Sequence[Route]  # the route, and those to its fallbacks
    options: Mapping[str, Any]
    wishes: UserWishes
    available: AvailableTools
    template: Request
    meter: Meter | None


def determine_setup(
    turn: Turn,
    resolved_route: Route | None,
    change_tools: Callable[[AvailableTools], AvailableTools] | None = None,
) -> Setup:
    """What the turn's model, preset and settings decide before its history is read.
    Raises LLMError."""
    chosen = turn.conversation.preset_id
    preset = None if chosen is None else _preset(turn, chosen)
    pooled = pooled_routes.find(turn) if POOL in turn.options else []
    route = pooled[0] if pooled else resolved_route or route_of_turn(turn)
    token = turn.access_token
    options = {
        **route.defaults,
        **(preset.options if preset else {}),
        **turn.conversation.options_for(turn.author),
        **turn.options,
    }
    wishes = load_user_wishes(turn)
    available = load_available_tools(
        turn, options, preset, route, wishes.unwanted_tools
    )
    if change_tools is not None:
        available = change_tools(available)
    template = request_template(route, options, available)
    routes = _routes(turn, pooled or [route], available, template)
    if preset is not None:
        template = preset_limits.limit_output(preset, template)
        if change_tools is None:  # staff replay turns with any model
            routes = preset_limits.filter_routes(preset, routes)
    limits: Applied = ()
    if applicable.state.exists is not False:
        limits = limits_of(turn.actor_id, token.pk if token else None)
    is_metered = bool(limits) or (token is not None and token.is_metered)
    return Setup(
        preset=preset,
        route=route,
        routes=routes,
        options=options,
        wishes=wishes,
        available=available,
        template=template,
        meter=Meter(token, route, limits) if is_metered else None,
    )


def _routes(
    turn: Turn, hosts: Sequence[Route], available: AvailableTools, template: Request
) -> Sequence[Route]:
    """The routes to the hosts, and to the fallbacks of the first, without those that
    the turn's token does not permit now; this may have changed since the request. Only
    models that go on behind a given text continue an answer: others would write all of
    it anew.

    Raises ModelNotAvailable.
    """
    route, *others = hosts
    own, fallbacks = route, list[Route]()
    is_own_model = route.model_id == turn.language_model_id
    if not (is_own_model and "fallbacks" in turn.lacking):
        own, *fallbacks = router.routes_of(route, user=turn.actor)
    known = {each.model_id for each in hosts}
    fallbacks = [each for each in fallbacks if each.model_id not in known]
    routes: Sequence[Route] = [own, *others, *fallbacks]
    if CONTINUES in turn.options:
        effort = (template.reasoning or {}).get("effort")
        fallbacks = [each for each in routes[1:] if each.takes_prefill(effort)]
        routes = [*routes[:1], *fallbacks]
    if (token := turn.access_token) is not None and token.model_ids:
        check_model(token, route.model_id, route.name)
        routes = [each for each in routes if token.may_use_model(each.model_id)]
    return available.adapt_routes(routes) if available.hosted_candidates else routes


def _preset(turn: Turn, chosen: int) -> Preset:
    """Raises PresetNotAvailable: without the preset its restrictions would be lost."""
    permitted = Preset.objects.available_to(turn.actor)
    preset = permitted.filter(pk=chosen).first()
    if preset is None:
        raise PresetNotAvailable
    turn.conversation.preset = preset  # its model may be the one of the turn
    return preset


def route_of_turn(turn: Turn) -> Route:
    """Checks the permission again, which may have been withdrawn since the turn was
    opened."""
    model, user = turn.language_model or turn.conversation.usual_model, turn.actor
    if model is None:
        return router.resolve(None, user=user)
    is_for_all = turn.language_model is not None and "restriction" in turn.lacking
    if not (is_for_all or user.is_superuser or _PERMITTED.rows(model.pk, user.pk)):
        raise ModelNotAvailable
    return router.route_of(model, user=user)


def load_user_wishes(turn: Turn) -> UserWishes:
    """None for gateway turns, whose clients say all that a model shall know."""
    if "gateway" in turn.options:
        return NO_WISHES
    found = UserSettings()
    if "wishes" not in turn.lacking:
        found = UserSettings.objects.for_user(turn.actor_id)
    own = found.custom_instructions.strip()
    remembers = found.memory_enabled and not turn.conversation.is_temporary
    return UserWishes(
        instructions=f"{_HEADING}\n{own}" if own else "",
        unwanted_tools=frozenset() if remembers else MEMORY_TOOLS,
    )


def request_template(
    route: Route, options: Mapping[str, Any], available: AvailableTools
) -> Request:
    request = Request(
        model="",
        items=(),
        tools=available.definitions,
        in_background=True,  # if staff enabled it for the model
    )
    return RequestBuilder(route).build(request, options)


def instructions_of(turn: Turn, preset: Preset | None, wishes: UserWishes) -> str:
    """The preset's or the site's instructions, then those of the user."""
    instructions: str = (
        turn.options.get("instructions")
        or turn.conversation.instructions
        or (folder.instructions if (folder := turn.conversation.folder) else "")
        or (preset.instructions if preset else "")
        or settings.SYSTEM_PROMPT
    )
    return "\n\n".join(filter(None, [instructions, wishes.instructions]))


def on_demand_block(
    turn_context: TurnContext, available: AvailableTools
) -> Sequence[ContextBlock]:
    """A list of the sources that the model can read with `get_context`, if it has that
    tool."""
    if "get_context" not in available.tools:
        return ()
    names = [f"- {source.name}: {source.title}" for source in turn_context.on_demand]
    text = "Call `get_context` with one of these names:\n" + "\n".join(names)
    return [ContextBlock("Further context", text)]


def prepare_request(
    template: Request,
    instructions: str,
    on_demand: Sequence[ContextBlock],
    first: Sequence[ItemPayload],
    history: History,
    route: Route,
    answered: Sequence[ItemPayload],
    context: Sequence[ContextBlock] = (),
) -> Request:
    """`first` stands before the conversation, where providers cache it."""
    own = [item for item in answered[history.covered :] if not is_compaction(item)]
    prompt = render_prompt(
        instructions,
        [*first, *history.before, *history.question, *own],
        context=[*context, *on_demand],
        tools=template.tools,
        context_window=route.context_window,
        max_output_tokens=template.max_output_tokens,
        prefix=None if first else history.prefix,
    )
    called = any(item["type"] == "function_call" for item in answered)
    choice = template.tool_choice
    return replace(
        template,
        instructions=prompt.instructions,
        items=prompt.items,
        tool_choice=choice_after_calls(choice) if called else choice,
    )


def echo_of(options: Mapping[str, Any], template: Request) -> dict[str, Any]:
    """The parts of the request that the response repeats."""
    echo: dict[str, Any] = {
        "tools": _redact_tools(template.tools),
        "max_output_tokens": template.max_output_tokens,
    }
    for name in ("temperature", "top_p", "tool_choice", "parallel_tool_calls"):
        if options.get(name) is not None:
            echo[name] = options[name]
    if isinstance(metadata := options.get("metadata"), dict):
        echo["metadata"] = metadata
    if reasoning := options.get("reasoning"):
        echo["reasoning"] = {"effort": None, "summary": None, **reasoning}
    if text := options.get("text"):
        echo["text"] = {"format": {"type": "text"}, **text}
    return echo


def _redact_tools(tools: Sequence[dict[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The tools without credentials for MCP servers, which are not shown to the
    client; the same list if there are none."""
    hidden = {"authorization", "headers"}
    if all(hidden.isdisjoint(tool) for tool in tools):
        return tools
    return [{n: v for n, v in tool.items() if n not in hidden} for tool in tools]
