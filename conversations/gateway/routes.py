"""Resolve model names and tools for a token's user, cached for a few seconds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.signals import m2m_changed, post_delete, post_save

from conversations.engine.database import Database
from conversations.gateway.cache import Cache, forget_on_change
from conversations.models import AccessToken
from llm import policy, router
from llm.capabilities import capabilities_of
from llm.errors import ModelNotAvailable
from llm.models import ApiKey, LanguageModel, Provider
from llm.provider import Route
from llm.retry import Policy
from tools.declared_tools import ALL_KINDS, DeclaredTool
from tools.models import Tool as ToolRow
from tools.registry import Tool

_OLDER = {"anthropic": "anthropic_2023"}  # codecs


@dataclass(frozen=True, slots=True)
class Way:
    """A model's route and its fallbacks, with the policy that the staff configured."""

    routes: list[Route]
    policy: Policy

    @property
    def first(self) -> Route:
        return self.routes[0]


async def way_to(model: str, token: AccessToken, database: Database) -> Way:
    """Raises ModelNotAvailable, InvalidKey."""
    if len(model) > 300:  # longer than any name; limits the cache's keys
        raise ModelNotAvailable("There is no model of this name.", param="model")
    return await _ways.get((token.user_id, model), database)


def in_older_version(way: Way) -> Way:
    """Use the previous version of the API on hosts that still have it.

    The host, not this server, checks the options of that version.
    """
    return replace(way, routes=[_in_older_version(route) for route in way.routes])


async def own_tools(token: AccessToken, database: Database) -> dict[str, Tool]:
    """The server tools that may run during a request of the token's user, by name.

    All are made blocking, because no call can continue after the request.
    """
    return await _tools.get(token.user_id, database)


async def declarable_kinds(token: AccessToken, database: Database) -> Collection[str]:
    """The kinds of tools that the token's requests may declare."""
    if token.declares_any_tool:
        return ALL_KINDS
    return await _kinds.get(token.user_id, database)


def _in_older_version(route: Route) -> Route:
    endpoint = route.endpoint
    older = endpoint.provider.codecs.get(_OLDER.get(endpoint.codec.name, ""))
    if older is None:
        return route
    known, stated = endpoint.provider.name, route.capabilities
    before = capabilities_of(known, route.model, wire=endpoint.codec.name).told()
    then = capabilities_of(known, route.model, wire=older.name).told()
    unsaid = {n for n in {*before, *then} if stated.get(n) == before.get(n)}
    can = {n: stated[n] for n in stated if n not in unsaid}
    can |= {n: then[n] for n in then if n in unsaid}
    return replace(route, endpoint=replace(endpoint, codec=older), capabilities=can)


def _user(user_id: int) -> Any:
    return get_user_model()._default_manager.get(pk=user_id)


def _find(key: tuple[int, str]) -> Way:
    user_id, model = key
    user = _user(user_id)
    route = router.resolve(model, user=user)
    return Way(policy.routes_of(route, user=user), policy.policy_of(route))


def _find_tools(user_id: int) -> dict[str, Tool]:
    return {
        name: replace(tool, blocking=True)
        for name, tool in ToolRow.objects.available(_user(user_id)).items()
    }


def _find_kinds(user_id: int) -> Collection[str]:
    return DeclaredTool.objects.kinds_for(_user(user_id))


def forgotten_with_models(cache: Cache[Any, Any]) -> Any:
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
    changed = forget_on_change(cache)
    for model in rows:
        for signal in (post_save, post_delete):
            signal.connect(changed, sender=model, weak=False)
    for relation in (*relations, get_user_model().groups):
        m2m_changed.connect(changed, sender=relation.through, weak=False)


_ways: Cache[tuple[int, str], Way] = forgotten_with_models(Cache(_find))
_tools: Cache[int, dict[str, Tool]] = Cache(_find_tools)
_clear_with(_tools, rows=(ToolRow,), relations=(ToolRow.groups,))
_kinds: Cache[int, Collection[str]] = Cache(_find_kinds)
_clear_with(_kinds, rows=(DeclaredTool,), relations=(DeclaredTool.groups,))
