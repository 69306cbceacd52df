"""Resolve model names and tools for a token's user, cached for a few seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.signals import m2m_changed, post_delete, post_save

from conversations.engine.database.executor import Database
from conversations.gateway.cache import Cache, clear_on_change
from conversations.models import AccessToken
from llm import policy, router
from llm.capabilities import capabilities_of
from llm.errors import ModelNotAvailable
from llm.generation.retry_policy import Policy
from llm.models import ApiKey, LanguageModel, Provider
from llm.provider import Route
from tools.models import Tool as ToolRow
from tools.models.declared_tool import ALL_KINDS, DeclaredTool
from tools.registry import RuntimeTool

_OLDER_CODECS = {"anthropic": "anthropic_2023"}  # codecs


@dataclass(frozen=True, slots=True)
class ModelChain:
    """A model's route and its fallbacks, with the policy that the staff configured."""

    routes: list[Route]
    policy: Policy

    @property
    def first(self) -> Route:
        return self.routes[0]


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
    provider_name, stated = endpoint.provider.name, route.capabilities
    current_defaults = capabilities_of(
        provider_name, route.model, wire=endpoint.codec.name
    ).to_dict()
    older_defaults = capabilities_of(
        provider_name, route.model, wire=older.name
    ).to_dict()
    defaulted = {
        n
        for n in {*current_defaults, *older_defaults}
        if stated.get(n) == current_defaults.get(n)
    }
    capabilities = {n: stated[n] for n in stated if n not in defaulted}
    capabilities |= {n: older_defaults[n] for n in older_defaults if n in defaulted}
    return replace(
        route, endpoint=replace(endpoint, codec=older), capabilities=capabilities
    )


def _user(user_id: int) -> Any:
    return get_user_model()._default_manager.get(pk=user_id)


def _find(key: tuple[int, str]) -> ModelChain:
    user_id, model = key
    user = _user(user_id)
    route = router.resolve(model, user=user)
    return ModelChain(policy.routes_of(route, user=user), policy.policy_of(route))


def _find_tools(user_id: int) -> dict[str, RuntimeTool]:
    return {
        name: replace(tool, blocking=True)
        for name, tool in ToolRow.objects.available(_user(user_id)).items()
    }


def _find_kinds(user_id: int) -> Collection[str]:
    return DeclaredTool.objects.kinds_for(_user(user_id))


def clear_with_models(cache: Cache[Any, Any]) -> Any:
    """`cache`, cleared when a model, its provider or its permissions change."""
    _clear_with(
        cache,
        rows=(Provider, ApiKey, LanguageModel),
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
_tools: Cache[int, dict[str, RuntimeTool]] = Cache(_find_tools)
_clear_with(_tools, rows=(ToolRow,), relations=(ToolRow.groups,))
_kinds: Cache[int, Collection[str]] = Cache(_find_kinds)
_clear_with(_kinds, rows=(DeclaredTool,), relations=(DeclaredTool.groups,))
