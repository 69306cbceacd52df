"""What a turn's model, preset, conversation and user determine, before its items are
read: its routes, options and tools, and the template of its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conversations.access.admission import check_model
from conversations.access.limits import applicable
from conversations.access.limits.applicable import Applied, limits_of
from conversations.engine.loading import pooled_routes, preset_limits
from conversations.engine.loading.available_tools import (
    AvailableTools,
    load_available_tools,
)
from conversations.engine.loading.request_template import (
    UserWishes,
    load_user_wishes,
    request_template,
)
from conversations.engine.metering import Meter
from conversations.models import Turn
from conversations.models.item import CONTINUES
from conversations.models.preset import Preset, PresetNotAvailable
from conversations.models.turn import POOL
from llm import policy, router
from llm.db.regular_user import RegularUser
from llm.db.statements import CompiledRows
from llm.errors import ModelNotAvailable
from llm.models import LanguageModel
from llm.provider import Route
from llm.wire.request import Request

_PERMITTED = CompiledRows(
    lambda pk, user: (
        LanguageModel.objects.available_to(RegularUser(user))
        .filter(pk=pk)
        .values_list("pk")
    ),
    -1,
    -2,
)


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
        own, *fallbacks = policy.routes_of(route, user=turn.actor)
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
