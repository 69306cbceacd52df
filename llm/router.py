"""Resolution of a model name to a route: host, account, wire format, limits.

Each lookup takes two queries, for any number of models and keys: one for the model with
its provider, one for the provider's keys. For a user there is one more if the provider
accepts own keys, and one if it has keys of groups.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import orjson
from django.core.signals import setting_changed
from django.db.models import Exists, Q

from llm.capabilities import Capabilities, capabilities_of
from llm.conf import settings
from llm.db.statements import CompiledQuery, CompiledRows
from llm.db.user_parameter import UserParameter
from llm.errors import BadRequest, InvalidKey, LLMError, ModelNotAvailable
from llm.keys import pool as key_pool
from llm.keys.audience import EVERYBODY, KeyAudience
from llm.keys.pool import KeyPool
from llm.keys.stored_secrets import decrypt_key, reveal_secret_headers, with_provider
from llm.keys.token_credentials import compact_key, with_issued_token
from llm.models import (
    ApiKey,
    LanguageModel,
    LanguageModelQuerySet,
    ModelPool,
    Provider,
)
from llm.pools.choice import choose_model, find_pool
from llm.provider import Endpoint, Route
from llm.provider import Provider as Host
from llm.route_cache import RouteCache, describe_rows

_STAFF_KEYS = CompiledQuery[ApiKey](
    lambda provider: ApiKey.objects.filter(provider_id=provider, weight__gt=0), -1
)
_OWN_KEYS = CompiledQuery[ApiKey](
    lambda provider, owner: ApiKey.every.filter(
        provider_id=provider, owner_id=owner, weight__gt=0
    ),
    -1,
    -2,
)
_NO_MODEL = "No model is available; ask the staff to set one up."


def resolve(name: str | None, *, user: Any = None) -> Route:
    """The route to the model of this name, or to the default model.

    A name is an alias, `provider/model`, a model pool (`llm.pools`), or the
    model's own name if only one provider has it. A model that `user` may not use is
    treated as missing; without a user all models may be used. Raises
    ModelNotAvailable, InvalidKey.
    """
    return route_of(find_model(name, user=user), user=user)


def find_model(name: str | None, *, user: Any = None) -> LanguageModel:
    """The model of this name, or the default one, with its provider; that of a retired
    one is its replacement. It may be unusable, which `route_of` checks. Raises
    ModelNotAvailable."""
    model = _default_model(user) if name is None else _find_by_name(name, user)
    return model.current_for(user) if model.retires_at else model


def route_of(model: LanguageModel, *, user: Any = None) -> Route:
    """The route to this model, with a key that may rest: each call selects its own
    (`llm.keys.selection`).

    The keys are the user's own ones, else those of a group of the user, else those for
    everybody. Raises ModelNotAvailable, InvalidKey.
    """
    if model.retires_at:
        model = model.current_for(user)
    _check_usable(model)
    provider = model.provider
    audience, rows = _keys_for(provider, user)
    pool = key_pool.fill(provider, rows, audience)
    keys = pool.sort_keys(model.name, time.time())
    # A host that needs no key is called without one only if no key is stored for it. If
    # all stored keys are disabled, drained or expired, it is not called.
    if not keys and (rows or _host_of(provider).needs_key):
        raise key_pool.no_active_key(provider.name)
    unreadable: InvalidKey | None = None
    for key in keys:
        try:
            return route_by(model, key, audience)
        except InvalidKey as exc:
            unreadable = unreadable or exc
    if unreadable:
        raise unreadable
    return route_by(model, None)


def keyless_route_of(model: LanguageModel) -> Route:
    """The route to this model without a key, for `with_call_key`. Raises
    ModelNotAvailable, also where the key would be sent to a replacement's provider."""
    _check_usable(model)
    retired = model.stands_in_for
    if retired is not None and retired.provider_id != model.provider_id:
        _check_usable(retired)
    return route_by(model, None)


def with_call_key(route: Route, api_key: str, *, is_token: bool = False) -> Route:
    """`route` with a key that is in no row, sent as a stored one would be.

    `is_token`: it was issued for this call; at a host that takes tokens in place of
    keys it is sent as it is.
    """
    endpoint = replace(
        route.endpoint,
        api_key=compact_key(api_key),
        credentials=None,
        route=f"{route.provider_id}:",
    )
    endpoint = endpoint.provider.connect(endpoint)
    if is_token:
        endpoint = with_issued_token(endpoint)
    return replace(route, endpoint=endpoint, key_id=None, key_audience=EVERYBODY)


def with_key(route: Route, provider: Provider, key: ApiKey) -> Route:
    """`route` with another key of its provider. Raises InvalidKey, BadRequest."""
    endpoint = endpoint_of(provider, key)
    # A repair may have changed the codec for this call.
    endpoint = replace(endpoint, codec=route.endpoint.codec)
    return _intern(replace(route, endpoint=endpoint, key_id=key.pk))


def reload_keys(pool: KeyPool) -> None:
    """Reads rows."""
    provider = pool.provider
    if not pool.is_filled:  # then of the provider only the key and name are known
        provider = Provider.objects.filter(pk=provider.pk).first() or provider
    pool.fill(provider, _keys_of(provider.pk, pool.audience))


def _keys_for(provider: Provider, user: Any) -> tuple[KeyAudience, list[ApiKey]]:
    """The keys that pay for the user's calls, and whose they are: the user's own, else
    those of the user's first group that has some, else those for everybody. The user's
    and a group's count only if at least one of them is enabled and has not expired."""
    user_id = user.pk if user is not None else None
    if user_id is not None and provider.accepts_own_keys:
        own = KeyAudience(user_id=user_id)
        if _are_enabled(rows := _keys_of(provider.pk, own)):
            return own, rows
    shared = _STAFF_KEYS.all_shared(provider.pk)
    of_groups = {row.group_id for row in shared if row.group_id is not None}
    if user_id is not None and of_groups:
        groups = user.groups.filter(pk__in=of_groups).order_by("pk")
        for (group_id,) in groups.values_list("pk"):
            group = KeyAudience(group_id=group_id)
            if _are_enabled(keys := _only(shared, group)):
                return group, keys
    return EVERYBODY, _only(shared, EVERYBODY)


def _keys_of(provider_id: int, audience: KeyAudience) -> list[ApiKey]:
    if audience.user_id is not None:
        return list(_OWN_KEYS.all(provider_id, audience.user_id))
    return _only(_STAFF_KEYS.all_shared(provider_id), audience)


def _only(rows: Sequence[ApiKey], audience: KeyAudience) -> list[ApiKey]:
    return [row for row in rows if row.group_id == audience.group_id]


def _are_enabled(rows: Sequence[ApiKey]) -> bool:
    return any(row.state != ApiKey.State.DISABLED and not row.has_ended for row in rows)


def route_by(
    model: LanguageModel, key: ApiKey | None, audience: KeyAudience = EVERYBODY
) -> Route:
    """The route to this model with this key, even if they are disabled. Rows that have
    not changed give the route of the last time, without decrypting anything again."""
    cache_key = (model.pk, key.pk if key else None, audience)
    columns = describe_rows(model, key)
    if (cached := _route_cache.find(cache_key, columns)) is not None:
        return cached
    route = _build_route(model, key, audience)
    # A reference is read at each use.
    if key is None or not with_provider(model.provider, key).reference:
        _route_cache.store(cache_key, columns, route)
    return route


_route_cache = RouteCache()
setting_changed.connect(_route_cache.clear)  # the key ring, the server's own address


def _build_route(
    model: LanguageModel, key: ApiKey | None, audience: KeyAudience
) -> Route:
    provider = model.provider
    endpoint = endpoint_of(provider, key)
    route = Route(
        endpoint=endpoint,
        model=model.name,
        name=model.public_name,
        model_id=model.pk,
        provider_id=provider.pk,
        key_id=key.pk if key else None,
        key_audience=audience,
        provider_name=provider.name,
        prices=model.prices,
        price_schedule=model.price_schedule,
        capabilities=capabilities(model, wire=endpoint.codec.name),
        context_window=model.context_window,
        max_output_tokens=model.max_output_tokens,
        defaults=model.options,
        replaces=model.stands_in_for.public_name if model.stands_in_for else "",
    )
    return _intern(route)


def _intern(route: Route) -> Route:
    """The equal route that is in use already, if any: thousands of answers of a model
    may be open. A route that is no longer in use is freed, and its key with it."""
    cache_key = (route.model_id, route.key_id, route.endpoint.codec.name)
    interned = _interned_routes.get(cache_key)
    # In Python 1 == True.
    if interned == route and _json_text(interned) == _json_text(route):
        return interned
    _interned_routes[cache_key] = route
    return route


def _json_text(route: Route) -> str:
    """A text that distinguishes all values that staff entered as JSON."""
    endpoint = route.endpoint
    prices = route.prices, route.price_schedule
    return repr((route.defaults, route.capabilities, prices, endpoint.options))


_interned_routes: WeakValueDictionary[tuple[int | None, int | None, str], Route] = (
    WeakValueDictionary()
)


def endpoint_of(provider: Provider, key: ApiKey | None) -> Endpoint:
    """The endpoint of the account. Raises InvalidKey if the key cannot be decrypted,
    BadRequest if its provider's row is invalid."""
    host = _host_of(provider)
    try:
        codec = host.codec(provider.codec, provider.options)
    except KeyError as exc:
        raise BadRequest(
            f"The provider {provider.name!r} does not support the wire format"
            f" {provider.codec!r}; ask the staff to correct it."
        ) from exc
    endpoint = Endpoint(
        provider=host,
        codec=codec,
        api_key=decrypt_key(provider, key) if key else "",
        # Empty for the address in our own code, which may be a private one.
        base_url="" if provider.address == host.base_url else provider.address,
        headers=provider.headers,
        secret_headers=reveal_secret_headers(provider),
        connection=provider.connection,
        options=provider.options,
        allow_private_network=provider.allow_private_network,
        keeps_exchanges=provider.keeps_exchanges,
        route=f"{provider.pk}:{key.pk if key else ''}",
    )
    return host.connect(endpoint)


def capabilities(model: LanguageModel, *, wire: str = "") -> Capabilities:
    """The capabilities of the model: bundled, probed, and set by staff, who decide."""
    limits = {
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
    }
    stated = {name: limit for name, limit in limits.items() if limit is not None}
    probed = model.findings if model.probed_capabilities else {}
    overrides = {**probed, **model.capabilities, **stated}
    return _capabilities(model.provider.kind, model.name, orjson.dumps(overrides), wire)


@lru_cache(maxsize=1_000)
def _capabilities(kind: str, name: str, overrides: bytes, wire: str) -> Capabilities:
    """The overrides are JSON, so that they can be a key of the cache."""
    return capabilities_of(kind, name, orjson.loads(overrides), wire=wire)


def available(user: Any) -> LanguageModelQuerySet:
    """The models that `user` may choose from, with their providers. The model that
    writes what people dictate is none of them."""
    models = LanguageModel.objects.usable().available_to(user)
    if name := settings.TRANSCRIPTION_MODEL:
        provider, _, rest = name.partition("/")
        models = models.exclude(
            pk__in=_query_by_name(name, provider, rest).values("pk")
        )
    return models.select_related("provider")


# Fallbacks


_FALLBACK_IDS = CompiledRows(
    lambda model: (
        LanguageModel.fallbacks.through.objects.filter(from_languagemodel=model)
        .order_by("pk")
        .values_list("to_languagemodel")
    ),
    -1,
)


def routes_of(
    route: Route, *, user: Any = None, keyless_for: int | None = None
) -> list[Route]:
    """`route` and the routes to its fallback models that `user` can use now.

    Those of the provider `keyless_for` have no key: the call brings one for it.
    Reads rows; without a fallback it is one query.
    """
    if route.model_id is None:
        return [route]
    ids = [pk for (pk,) in _FALLBACK_IDS.rows(route.model_id)]
    if not ids:
        return [route]
    found = available(user).in_bulk(ids)
    models = (found[pk] for pk in ids if pk in found)
    return [route, *_usable_fallbacks(models, user, keyless_for)]


def _usable_fallbacks(
    models: Iterator[LanguageModel], user: Any, keyless_for: int | None
) -> Iterator[Route]:
    for model in models:
        try:
            if model.provider_id == keyless_for:
                yield keyless_route_of(model)
            else:
                yield route_of(model, user=user)
        except LLMError:
            continue  # a model without a key is no fallback


# By name


def _default_model(user: Any) -> LanguageModel:
    # A retired default model counts: its replacement is meant.
    default = LanguageModel.objects.filter(is_default=True, retires_at__isnull=False)
    rows = available(user) | default.available_to(user).select_related("provider")
    model = rows.order_by("-is_default", "pk").first()
    if model and model.is_retired and model.current_for(user).why_unusable:
        model = available(user).order_by("pk").first()
    return model or _raise_unavailable(_NO_MODEL)


def _query_by_name(name: str, provider: str, rest: str) -> LanguageModelQuerySet:
    # A pool's name wins over the plain names of models.
    pools = ModelPool.objects.filter(name=name, enabled=True)
    plain = Q(~Exists(pools), name=name)
    by_name = Q(alias=name) | plain | Q(provider__name=provider, name=rest)
    return LanguageModel.objects.filter(by_name).select_related("provider")


_BY_NAME = CompiledQuery[LanguageModel](
    _query_by_name, "a name", "a provider", "a rest", related=("provider",)
)
_BY_NAME_FOR_USER = CompiledQuery[LanguageModel](
    lambda name, provider, rest, user: _query_by_name(
        name, provider, rest
    ).available_to(UserParameter(user)),
    "a name",
    "a provider",
    "a rest",
    -1,
    related=("provider",),
)


def _find_by_name(name: str, user: Any) -> LanguageModel:
    """The model, whose provider's instance all threads share. It may be unusable."""
    rows: Sequence[LanguageModel]
    provider, _, rest = name.partition("/")
    if user is None or user.is_superuser:
        rows = _BY_NAME.all_shared(name, provider, rest)
    elif user.pk is None:
        rows = list(_query_by_name(name, provider, rest).available_to(user))
    else:
        rows = _BY_NAME_FOR_USER.all_shared(name, provider, rest, user.pk)
    rows = [copy(row) for row in rows]  # whose attributes without a column may be set
    if len(rows) == 1:
        return rows[0]
    for row in rows:
        if row.alias == name:
            return row
    if rest:
        for row in rows:
            if row.full_name == name:
                return row
    if not rows and (pool := find_pool(name, user)) is not None:
        return choose_model(pool)
    return _choose_usable(rows, name)


def _choose_usable(models: Sequence[LanguageModel], name: str) -> LanguageModel:
    """The usable model; an unusable one if there is no other."""
    usable = [model for model in models if not model.why_unusable]
    if len(usable) > 1:
        names = ", ".join(sorted(model.full_name for model in usable))
        _raise_unavailable(
            f"Several providers have a model {name[:64]!r}; choose one of {names}."
        )
    if not models:
        _raise_unavailable(f"There is no model {name[:64]!r}; choose another one.")
    return (usable or models)[0]


def _check_usable(model: LanguageModel) -> None:
    if why := model.why_unusable:
        _raise_unavailable(f"The model {model.public_name!r} is not available: {why}.")


def _raise_unavailable(message: str) -> NoReturn:
    raise ModelNotAvailable(message, param="model")


def _host_of(provider: Provider) -> Host:
    if (host := provider.host) is None:
        _raise_unavailable(f"The provider's kind {provider.kind!r} is unknown.")
    return host
