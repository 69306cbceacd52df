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

from llm import key_pool
from llm.capabilities import NAMES, Capabilities, capabilities_of
from llm.encrypted import OriginChanged, SecretUnavailable
from llm.errors import BadRequest, InvalidKey, ModelNotAvailable
from llm.key_pool import KeyPool
from llm.models import ApiKey, LanguageModel, LanguageModelQuerySet, Provider
from llm.prepared import Prepared, Somebody
from llm.provider import Endpoint, Route
from llm.provider import Provider as Host

_KEYS = Prepared[ApiKey](
    lambda provider: ApiKey.objects.filter(provider_id=provider, weight__gt=0), -1
)
_NO_NAME = "No model is available; ask the staff to set one up."


def resolve(name: str | None, *, user: Any = None) -> Route:
    """The route to the model of this name, or to the default model.

    A name is an alias, `provider/model`, or the model's own name if only one provider
    has it. A model that `user` may not use is treated as missing; without a user all
    models may be used. Raises ModelNotAvailable, InvalidKey.
    """
    return route_of(model_called(name, user=user))


def model_called(name: str | None, *, user: Any = None) -> LanguageModel:
    """The model of this name, or the default one, with its provider; it may be
    unusable, which `route_of` checks. Raises ModelNotAvailable."""
    return _default(user) if name is None else _named(name, user)


def route_of(model: LanguageModel) -> Route:
    """The route to this model, with a key that may rest: each call selects its own
    (`key_selection`). Raises ModelNotAvailable, InvalidKey."""
    if why := model.why_unusable:
        _refuse(f"The model {model.public_name!r} is not available: {why}.")
    provider = model.provider
    pool = key_pool.fill(provider, _KEYS.all(provider.pk))
    keys = pool.ordered(model.name, time.time())
    if not keys and _host(provider).needs_key:
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
    return _one_of(replace(route, endpoint=endpoint, key_id=key.pk))


def reload_keys(pool: KeyPool) -> None:
    """Reads rows."""
    pool.fill(pool.provider, _KEYS.all(pool.provider.pk))


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
            **_own_words(model),
            **capabilities(model, wire=endpoint.codec.name).told(),
        },
        context_window=model.context_window,
        max_output_tokens=model.max_output_tokens,
        defaults=model.options,
    )
    return _one_of(route)


def _one_of(route: Route) -> Route:
    """The equal route that is in use already, if any: thousands of answers of a model
    may be open. A route that is no longer in use is freed, and its key with it."""
    place = (route.model_id, route.key_id, route.endpoint.codec.name)
    held = _held.get(place)
    # In Python 1 == True.
    if held == route and _written(held) == _written(route):
        return held
    _held[place] = route
    return route


def _written(route: Route) -> str:
    """A text that distinguishes all values that staff entered as JSON."""
    endpoint = route.endpoint
    return repr((route.defaults, route.capabilities, route.prices, endpoint.options))


_held: WeakValueDictionary[tuple[int | None, int | None, str], Route] = (
    WeakValueDictionary()
)


def endpoint_of(provider: Provider, key: ApiKey | None) -> Endpoint:
    """The endpoint of the account. Raises InvalidKey if the key cannot be decrypted,
    BadRequest if its provider's row is invalid."""
    host = _host(provider)
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
        api_key=_plain(provider, key) if key else "",
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


def _own_words(model: LanguageModel) -> dict[str, Any]:
    """Capabilities in the row that are unknown here."""
    return {k: v for k, v in model.capabilities.items() if k not in NAMES}


def available(user: Any) -> LanguageModelQuerySet:
    """The models that `user` may choose from, with their providers."""
    models = LanguageModel.objects.usable().permitted(user)
    return models.select_related("provider")


# By name


def _default(user: Any) -> LanguageModel:
    model = available(user).order_by("-is_default", "pk").first()
    return model or _refuse(_NO_NAME)


def _called(name: str, provider: str, rest: str) -> LanguageModelQuerySet:
    by_name = Q(alias=name) | Q(name=name) | Q(provider__name=provider, name=rest)
    return LanguageModel.objects.filter(by_name).select_related("provider")


_NAMED = Prepared[LanguageModel](_called, "a name", "a provider", "a rest")
_NAMED_FOR = Prepared[LanguageModel](
    lambda name, provider, rest, user: _called(name, provider, rest).permitted(
        Somebody(user)
    ),
    "a name",
    "a provider",
    "a rest",
    -1,
)


def _named(name: str, user: Any) -> LanguageModel:
    provider, _, rest = name.partition("/")
    if user is None or user.is_superuser:
        rows = _NAMED.all(name, provider, rest)
    elif user.pk is None:
        rows = list(_called(name, provider, rest).permitted(user))
    else:
        rows = _NAMED_FOR.all(name, provider, rest, user.pk)
    for row in rows:
        if row.alias == name:
            return row
    for row in rows:
        if row.full_name == name:
            return row
    return _only(rows, name)


def _only(models: Sequence[LanguageModel], name: str) -> LanguageModel:
    """The usable model; an unusable one if there is no other."""
    usable = [model for model in models if not model.why_unusable]
    if len(usable) > 1:
        names = ", ".join(sorted(model.full_name for model in usable))
        _refuse(f"Several providers have a model {name[:64]!r}; choose one of {names}.")
    if not models:
        _refuse(f"There is no model {name[:64]!r}; choose another one.")
    return (usable or models)[0]


def _refuse(message: str) -> NoReturn:
    raise ModelNotAvailable(message, param="model")


# By key


def _plain(provider: Provider, key: ApiKey) -> str:
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


def _host(provider: Provider) -> Host:
    if (host := provider.host) is None:
        _refuse(f"The provider's kind {provider.kind!r} is unknown.")
    return host
