"""Resolve model names and tools for a token's user, cached for a few seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.signals import m2m_changed, post_delete, post_save

from conversations.engine.database.executor import Database
from conversations.gateway.lookup_cache import Cache, clear_on_change
from conversations.models import AccessToken
from llm import policy, router
from llm.cache.cache_seconds import seconds_of
from llm.capabilities import FIELD_NAMES, capabilities_of
from llm.errors import ModelNotAvailable
from llm.generation.retry_policy import Policy
from llm.models import ApiKey, LanguageModel, OwnKey, Provider
from llm.models.api_key import keys_disabled
from llm.provider import Route
from tools.models import Tool as ToolRow
from tools.models.declared_tool import ALL_KINDS, DeclaredTool
from tools.registry import RuntimeTool

_OLDER_CODECS = {"anthropic": "anthropic_2023"}  # codecs


@dataclass(frozen=True, slots=True)
class ModelChain:
    """A model's route and its fallbacks, with the policy that the staff configured."""

    routes: list[Route]  # the fallbacks after the model's own
    policy: Policy
    cache_seconds: int = 0  # as staff have set it for the model


async def find_chain(model: str, token: AccessToken, database: Database) -> ModelChain:
    """Raises ModelNotAvailable, InvalidKey."""
    if len(model) > 300:  # longer than any name; limits the cache's keys
        raise ModelNotAvailable("There is no model of this name.", param="model")
    return await _chains.get((token.user_id, model), database)


def use_older_version(chain: ModelChain) -> ModelChain:
    """Use the previous version of the API on hosts that still have it.

    The host, not this server, checks the options of that version.
    """
    return replace(chain, routes=[_use_older_version(route) for route in chain.routes])


async def own_tools(token: AccessToken, database: Database) -> dict[str, RuntimeTool]:
    """The server tools that may run during a request of the token's user, by name.

    All are made blocking, because no call can continue after the request.
    """
    return await _tools.get(token.user_id, database)


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
    route = router.resolve(model, user=user)
    return ModelChain(
        policy.routes_of(route, user=user),
        policy.policy_of(route),
        seconds_of(route.defaults),
    )


def _find_tools(user_id: int) -> dict[str, RuntimeTool]:
    permitted = ToolRow.objects.load_for(_user(user_id))
    return {
        name: replace(tool, blocking=True)
        for name, tool in permitted.tools.items()
        if permitted.is_allowed(name, by_preset=None)
    }


def _find_kinds(user_id: int) -> Collection[str]:
    return DeclaredTool.objects.kinds_for(_user(user_id))


def clear_with_models(cache: Cache[Any, Any]) -> Any:
    """`cache`, cleared when a model, its provider or its permissions change."""
    _clear_with(
        cache,
        rows=(Provider, ApiKey, OwnKey, LanguageModel),
        relations=(LanguageModel.groups, LanguageModel.fallbacks),
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
