"""Resolve model names and tools for a token's user, cached for a few seconds.

Also chooses the host of a pool, and what the requests of a conversation share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.signals import m2m_changed, post_delete, post_save

from conversations.access.admission import check_model
from conversations.engine.database.executor import Database
from conversations.engine.loading.tool_rate_limit import limit_calls
from conversations.gateway import preset_models
from conversations.gateway.forwarding.other_models import MAX_NAME, Named
from conversations.gateway.lookup_cache import Cache, clear_on_change
from conversations.gateway.preset_models import PresetUse
from conversations.models import AccessToken, ContextSource, Preset
from llm import router
from llm.cache.cache_seconds import seconds_of
from llm.capabilities import FIELD_NAMES, capabilities_of
from llm.errors import BadRequest, LLMError, ModelNotAvailable
from llm.generation import retries
from llm.generation.retry_policy import Policy
from llm.models import (
    ApiKey,
    LanguageModel,
    ModelPool,
    OwnKey,
    PoolMember,
    Provider,
)
from llm.models.api_key import keys_disabled
from llm.pools.choice import find_pool, order_members
from llm.provider import Route
from llm.wire.items import Item
from llm.wire.request import Request
from tools.models import Tool as ToolRow
from tools.models.declared_tool import ALL_KINDS, DeclaredTool
from tools.registry import RuntimeTool

_PREFIX_LENGTH = 500  # characters
_OLDER_CODECS = {"anthropic": "anthropic_2023"}  # codecs


@dataclass(frozen=True, slots=True)
class PoolChains:
    """A model pool with the chain of each host that can be called now."""

    pool: ModelPool
    chains: Sequence[tuple[PoolMember, ModelChain]]  # at least one


@dataclass(frozen=True, slots=True)
class ModelChain:
    """A model's route and its fallbacks, with the policy that the staff configured."""

    routes: list[Route]  # the fallbacks after the model's own
    policy: Policy
    cache_seconds: int = 0  # as staff have set it for the model
    preset: PresetUse | None = None  # for which the model stands
    pool: PoolChains | None = None  # one of whose hosts has the first route
    model: LanguageModel | None = None  # of the first route, if it was named itself


async def find_chain(
    body: Mapping[str, Any], token: AccessToken, database: Database
) -> ModelChain:
    """The models that may answer, first the one that `body` names. Raises BadRequest,
    ModelNotAvailable, InvalidKey."""
    name = body.get("model")
    if not name or not isinstance(name, str):
        raise BadRequest("model: missing.", param="model")
    if len(name) > MAX_NAME:  # limits the cache's keys
        raise ModelNotAvailable("There is no model of this name.", param="model")
    chain = await _chains.get((token.user_id, name), database)
    if chain.pool is not None:
        chain = choose_host(chain.pool, token, body)
    return _restrict_chain(token, name, chain) if token.model_ids else chain


def _restrict_chain(token: AccessToken, name: str, chain: ModelChain) -> ModelChain:
    """The chain without models that the token may not use. Raises ModelNotAvailable."""
    check_model(token, chain.routes[0].model_id, name)
    return replace(
        chain, routes=[r for r in chain.routes if token.may_use_model(r.model_id)]
    )


async def find_alternatives(
    named: Sequence[Named], token: AccessToken, chain: ModelChain, database: Database
) -> Sequence[Route]:
    """Of the models that a body names besides `model`, for a host to call if `model`
    fails: those with rows, at each provider of the chain, without keys. Raises
    ModelNotAvailable if the token or its user may not use one of them, and
    ModelNotInPreset."""
    names = [name for _, name in named]
    providers = {route.provider_id for route in chain.routes}
    refused, found = await database.read(
        partial(_find_refused, names, token, providers)
    )
    if refused is not None:
        raise ModelNotAvailable(
            f"There is no model {names[refused][:64]!r}; choose another one.",
            param=named[refused][0],
        )
    if chain.preset is not None:
        chain.preset.check_alternatives(names, found)
    return found


def _find_refused(
    names: Sequence[str], token: AccessToken, providers: Collection[int | None]
) -> tuple[int | None, Sequence[Route]]:
    """The index of the first name that is refused: because one of the providers has a
    row of this name that may not be used, or because none has one and the token has a
    list of models. And the routes of all names that have rows."""
    bare = {name: name.partition(":")[0] for name in names}  # without ":free"
    rows = LanguageModel.objects.filter(
        provider__in=providers, name__in=[*bare, *bare.values()]
    )
    known: dict[tuple[int | None, str], LanguageModel] = {
        (row.provider_id, row.name): row for row in rows.select_related("provider")
    }
    user = _user(token.user_id)
    usable = set(rows.usable().available_to(user).values_list("pk", flat=True))
    chosen: dict[int, LanguageModel] = {}
    for index, name in enumerate(names):
        found = [
            known.get((provider, name)) or known.get((provider, bare[name]))
            for provider in providers
        ]
        models = {row.pk: row for row in found if row is not None}
        if any(key not in usable or not token.may_use_model(key) for key in models):
            return index, ()
        if not models and token.model_ids:
            return index, ()
        chosen |= models
    return None, [router.route_by(model, None) for model in chosen.values()]


def choose_host(
    chains: PoolChains, token: AccessToken, body: Mapping[str, Any]
) -> ModelChain:
    """The chain of the host that is called now, with the others as its fallbacks."""
    allowed = [each for each in chains.chains if token.may_use_model(each[0].model_id)]
    first, *others = order_members(
        chains.pool,
        allowed or chains.chains,  # the caller refuses what the token may not use
        lambda each: each[0],
        affinity_of_body(body, token.user_id),
    )
    routes = {
        route.model_id: route
        for route in (
            first[1].routes[0],
            *(chain.routes[0] for _, chain in others),
            *first[1].routes[1:],
        )
    }
    return replace(first[1], routes=list(routes.values()), pool=chains)


def affinity_of(
    request: Request, body: Mapping[str, Any], user_id: int, answer_id: str
) -> str:
    """A key that all requests of one conversation share, to select the same API key.

    It is the client's `prompt_cache_key`, or the beginning of the conversation. Before
    the first answer it is random.
    """
    if request.forwarded is not None and not request.items:
        return affinity_of_body(body, user_id) or answer_id
    if request.prompt_cache_key:
        return f"{user_id} {request.prompt_cache_key}"
    outputs = (
        item
        for item in request.items
        if item.get("role") == "assistant" or item.get("type") == "function_call"
    )
    if (first_output := next(outputs, None)) is None:
        return answer_id
    return f"{user_id} {_text(request.items[0])} {_text(first_output)}"


def affinity_of_body(body: Mapping[str, Any], user_id: int) -> str:
    """The same for a body as its client sent it; empty before the first answer."""
    if isinstance(key := body.get("prompt_cache_key"), str) and key:
        return f"{user_id} {key}"
    entries = body.get("messages", body.get("input"))
    entries = entries if isinstance(entries, list) else []
    said = [each for each in entries[:50] if isinstance(each, dict)]
    outputs = (
        each
        for each in said
        if each.get("role") == "assistant" or each.get("type") == "function_call"
    )
    if (first_output := next(outputs, None)) is None:
        return ""
    texts = _text_of_entry(said[0]), _text_of_entry(first_output)
    return f"{user_id} {texts[0]} {texts[1]}"


def _text_of_entry(entry: dict[str, Any]) -> str:
    """The beginning of a message's text, or the id of its first call."""
    calls = entry.get("tool_calls")
    first = calls[0] if isinstance(calls, list) and calls else None
    id = first.get("id") if isinstance(first, dict) else None
    return str(id) if id else _text(entry)


def _text(item: Item) -> str:
    """The beginning of an item's text, or its `call_id`."""
    if item.get("call_id"):
        return str(item["call_id"])
    parts = item.get("content")
    if isinstance(parts, str):
        return parts[:_PREFIX_LENGTH]
    parts = parts if isinstance(parts, list) else ()
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return next((text[:_PREFIX_LENGTH] for text in texts if isinstance(text, str)), "")


def use_older_version(chain: ModelChain) -> ModelChain:
    """Use the previous version of the API on hosts that still have it.

    The host, not this server, checks the options of that version.
    """
    return replace(chain, routes=[_use_older_version(route) for route in chain.routes])


async def own_tools(token: AccessToken, database: Database) -> dict[str, RuntimeTool]:
    """The server tools that may run during a request of the token, by name.

    All are made blocking, because no call can continue after the request.
    """
    found = await _tools.get(token.user_id, database)
    if token.tool_names:
        found = {name: tool for name, tool in found.items() if token.may_use_tool(name)}
    return found


async def declarable_kinds(token: AccessToken, database: Database) -> Collection[str]:
    """The kinds of tools that the token's requests may declare."""
    if token.declares_any_tool:
        return ALL_KINDS
    return await _kinds.get(token.user_id, database)


def _use_older_version(route: Route) -> Route:
    endpoint = route.endpoint
    older = endpoint.provider.codecs.get(_OLDER_CODECS.get(endpoint.codec.name, ""))
    if older is None:
        return route
    # What staff have stated counts for both versions.
    stated, kind = route.capabilities, endpoint.provider.name
    current = capabilities_of(kind, route.model, wire=endpoint.codec.name)
    previous = capabilities_of(kind, route.model, wire=older.name)
    changed = {
        name: getattr(previous, name)
        for name in FIELD_NAMES
        if getattr(stated, name) == getattr(current, name)
    }
    return replace(
        route,
        endpoint=replace(endpoint, codec=older),
        capabilities=replace(stated, **changed),
    )


def _user(user_id: int) -> Any:
    return get_user_model()._default_manager.get(pk=user_id)


def _find(key: tuple[int, str]) -> ModelChain:
    user_id, model = key
    user = _user(user_id)
    if model.startswith(preset_models.PREFIX):
        use, routes = preset_models.load_routes(model, user)
        return ModelChain(
            routes,
            retries.policy_of(routes[0]),
            seconds_of(routes[0].defaults),
            preset=use,
        )
    if (pool := find_pool(model, user)) is not None:
        return _chain_of_pool(pool, user)
    row = router.find_model(model, user=user)
    return replace(_chain_of_route(router.route_of(row, user=user), user), model=row)


def _chain_of_pool(pool: ModelPool, user: Any) -> ModelChain:
    """Raises the first host's error if none can be called: ModelNotAvailable,
    InvalidKey."""
    chains: list[tuple[PoolMember, ModelChain]] = []
    problem: LLMError | None = None
    for member in pool.members.all():
        try:
            route = router.route_of(member.model, user=user)
        except LLMError as exc:
            problem = problem or exc
        else:
            chains.append((member, _chain_of_route(route, user)))
    if problem is not None and not chains:
        raise problem
    return replace(chains[0][1], pool=PoolChains(pool, chains))


def _chain_of_route(route: Route, user: Any) -> ModelChain:
    return ModelChain(
        router.routes_of(route, user=user),
        retries.policy_of(route),
        seconds_of(route.defaults),
    )


def _find_tools(user_id: int) -> dict[str, RuntimeTool]:
    user = _user(user_id)
    permitted = ToolRow.objects.load_for(user)
    return {
        name: limit_calls(replace(tool, blocking=True), user)
        if tool.calls_per_minute
        else replace(tool, blocking=True)
        for name, tool in permitted.tools.items()
        if permitted.is_allowed(name, by_preset=None)
    }


def _find_kinds(user_id: int) -> Collection[str]:
    return DeclaredTool.objects.kinds_for(_user(user_id))


def clear_with_models(cache: Cache[Any, Any]) -> Any:
    """`cache`, cleared when a model, its provider or its permissions change."""
    _clear_with(
        cache,
        rows=(
            Provider,
            ApiKey,
            OwnKey,
            LanguageModel,
            ModelPool,
            PoolMember,
            Preset,
            ContextSource,
        ),
        relations=(
            LanguageModel.groups,
            LanguageModel.fallbacks,
            Preset.groups,
            Preset.tools,
        ),
    )
    return cache


def _clear_with(
    cache: Cache[Any, Any], *, rows: Iterable[Any], relations: Iterable[Any]
) -> None:
    clear_cache = clear_on_change(cache)
    for model in rows:
        for signal in (post_save, post_delete):
            signal.connect(clear_cache, sender=model, weak=False)
    for relation in (*relations, get_user_model().groups):
        m2m_changed.connect(clear_cache, sender=relation.through, weak=False)


_chains: Cache[tuple[int, str], ModelChain] = clear_with_models(Cache(_find))
keys_disabled.connect(clear_on_change(_chains), weak=False)
_tools: Cache[int, dict[str, RuntimeTool]] = Cache(_find_tools)
_clear_with(_tools, rows=(ToolRow,), relations=(ToolRow.groups,))
_kinds: Cache[int, Collection[str]] = Cache(_find_kinds)
_clear_with(_kinds, rows=(DeclaredTool,), relations=(DeclaredTool.groups,))
