"""Resolution of a model name to a route: host, account, wire format, limits.

Each lookup takes two queries, for any number of models and keys: one for the model with
its provider, one for the provider's keys.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn
from weakref import WeakValueDictionary

from django.db.models import Q

from llm.capabilities import FIELD_NAMES, Capabilities, capabilities_of
from llm.db.compiled_queries import CompiledQuery, RegularUser
from llm.db.encrypted_field import OriginChanged, SecretUnavailable
from llm.errors import BadRequest, InvalidKey, ModelNotAvailable
from llm.keys import pool as key_pool
from llm.keys.pool import KeyPool
from llm.models import ApiKey, LanguageModel, LanguageModelQuerySet, Provider
from llm.provider import Endpoint, Route
from llm.provider import Provider as Host

_PROVIDER_KEYS = CompiledQuery[ApiKey](
    lambda provider: ApiKey.objects.filter(provider_id=provider, weight__gt=0), -1
)
_NO_MODEL = "No model is available; ask the staff to set one up."


def resolve(name: str | None, *, user: Any = None) -> Route:
    """The route to the model of this name, or to the default model.

    A name is an alias, `provider/model`, or the model's own name if only one provider
    has it. A model that `user` may not use is treated as missing; without a user all
    models may be used. Raises ModelNotAvailable, InvalidKey.
    """
    return route_of(find_model(name, user=user))


def find_model(name: str | None, *, user: Any = None) -> LanguageModel:
    """The model of this name, or the default one, with its provider; it may be
    unusable, which `route_of` checks. Raises ModelNotAvailable."""
    return _default_model(user) if name is None else _find_by_name(name, user)


def route_of(model: LanguageModel) -> Route:
    """The route to this model, with a key that may rest: each call selects its own
    (`key_selection`). Raises ModelNotAvailable, InvalidKey."""
    if why := model.why_unusable:
        _raise_unavailable(f"The model {model.public_name!r} is not available: {why}.")
    provider = model.provider
    pool = key_pool.fill(provider, _PROVIDER_KEYS.all(provider.pk))
    keys = pool.sort_keys(model.name, time.time())
    if not keys and _host_of(provider).needs_key:
        raise key_pool.no_active_key(provider.name)
    unreadable: InvalidKey | None = None
    for key in keys:
        try:
            return route_by(model, key)
        except InvalidKey as exc:
            unreadable = unreadable or exc
    if unreadable:
        raise unreadable
    return route_by(model, None)


def with_key(route: Route, provider: Provider, key: ApiKey) -> Route:
    """`route` with another key of its provider. Raises InvalidKey, BadRequest."""
    if key.pk == route.key_id:
        return route
    endpoint = endpoint_of(provider, key)
    # A repair may have changed the codec for this call.
    endpoint = replace(endpoint, codec=route.endpoint.codec)
    return _intern(replace(route, endpoint=endpoint, key_id=key.pk))


def reload_keys(pool: KeyPool) -> None:
    """Reads rows."""
    pool.fill(pool.provider, _PROVIDER_KEYS.all(pool.provider.pk))


def route_by(model: LanguageModel, key: ApiKey | None) -> Route:
    """The route to this model with this key, even if they are disabled."""
    provider = model.provider
    endpoint = endpoint_of(provider, key)
    route = Route(
        endpoint=endpoint,
        model=model.name,
        name=model.public_name,
        model_id=model.pk,
        provider_id=provider.pk,
        key_id=key.pk if key else None,
        provider_name=provider.name,
        prices=model.prices,
        capabilities={
            **_unknown_capabilities(model),
            **capabilities(model, wire=endpoint.codec.name).to_dict(),
        },
        context_window=model.context_window,
        max_output_tokens=model.max_output_tokens,
        defaults=model.options,
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
    return repr((route.defaults, route.capabilities, route.prices, endpoint.options))


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
            f"The provider {provider.name!r} does not speak {provider.codec!r};"
            " the staff must correct its wire format."
        ) from exc
    endpoint = Endpoint(
        provider=host,
        codec=codec,
        api_key=_decrypt_key(provider, key) if key else "",
        # Empty for the address in our own code, which may be a private one.
        base_url="" if provider.address == host.base_url else provider.address,
        headers=provider.headers,
        options=provider.options,
        allow_private_network=provider.allow_private_network,
        route=f"{provider.pk}:{key.pk if key else ''}",
    )
    return host.connect(endpoint)


def capabilities(model: LanguageModel, *, wire: str = "") -> Capabilities:
    """The capabilities of the model, from its row and the bundled data."""
    limits = {
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
    }
    stated = {name: limit for name, limit in limits.items() if limit is not None}
    overrides = {**model.capabilities, **stated}
    return capabilities_of(model.provider.kind, model.name, overrides, wire=wire)


def _unknown_capabilities(model: LanguageModel) -> dict[str, Any]:
    """Capabilities in the row that are unknown here."""
    return {k: v for k, v in model.capabilities.items() if k not in FIELD_NAMES}


def available(user: Any) -> LanguageModelQuerySet:
    """The models that `user` may choose from, with their providers."""
    models = LanguageModel.objects.usable().available_to(user)
    return models.select_related("provider")


# By name


def _default_model(user: Any) -> LanguageModel:
    model = available(user).order_by("-is_default", "pk").first()
    return model or _raise_unavailable(_NO_MODEL)


def _query_by_name(name: str, provider: str, rest: str) -> LanguageModelQuerySet:
    by_name = Q(alias=name) | Q(name=name) | Q(provider__name=provider, name=rest)
    return LanguageModel.objects.filter(by_name).select_related("provider")


_BY_NAME = CompiledQuery[LanguageModel](
    _query_by_name, "a name", "a provider", "a rest"
)
_BY_NAME_FOR_USER = CompiledQuery[LanguageModel](
    lambda name, provider, rest, user: _query_by_name(
        name, provider, rest
    ).available_to(RegularUser(user)),
    "a name",
    "a provider",
    "a rest",
    -1,
)


def _find_by_name(name: str, user: Any) -> LanguageModel:
    provider, _, rest = name.partition("/")
    if user is None or user.is_superuser:
        rows = _BY_NAME.all(name, provider, rest)
    elif user.pk is None:
        rows = list(_query_by_name(name, provider, rest).available_to(user))
    else:
        rows = _BY_NAME_FOR_USER.all(name, provider, rest, user.pk)
    for row in rows:
        if row.alias == name:
            return row
    for row in rows:
        if row.full_name == name:
            return row
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


def _raise_unavailable(message: str) -> NoReturn:
    raise ModelNotAvailable(message, param="model")


# By key


def _decrypt_key(provider: Provider, key: ApiKey) -> str:
    key.provider = provider  # the row read now: the secret must match its origin
    if not key.secret:
        raise InvalidKey(
            f"The key {key.label!r} of the provider {provider.name!r} is empty;"
            " ask the staff to enter it."
        )
    try:
        return str(key.secret.reveal())
    except OriginChanged as exc:
        raise InvalidKey(
            f"The key {key.label!r} of the provider {provider.name!r} was entered for"
            " another address than the provider has now, and is not sent; ask the staff"
            " to enter it again."
        ) from exc
    except SecretUnavailable as exc:
        raise InvalidKey(
            f"The key {key.label!r} of the provider {provider.name!r} cannot be"
            " decrypted; ask the staff to restore ENCRYPTION_KEYS or enter it again."
        ) from exc


def _host_of(provider: Provider) -> Host:
    if (host := provider.host) is None:
        _raise_unavailable(f"The provider's kind {provider.kind!r} is unknown.")
    return host
