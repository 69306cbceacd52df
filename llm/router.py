"""From a model's name to all that a call needs: host, account, wire format, limits.

Every answer takes two queries, whatever the number of models and keys: one for the
model with its provider, one for the provider's keys.
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
    """The way to the model of this name, or to the default one.

    A name is an alias, `provider/model`, or the model's own where only one provider
    has it. A model that `user` may not use is as good as none; no user means the
    program itself, which may use all. Raises ModelNotAvailable, InvalidKey.
    """
    return route_of(model_called(name, user=user))


def model_called(name: str | None, *, user: Any = None) -> LanguageModel:
    """The model of this name, or the default one, with its provider; whether it can be
    used is for `route_of` to say. Raises ModelNotAvailable."""
    return _default(user) if name is None else _named(name, user)


def route_of(model: LanguageModel) -> Route:
    """The way to this model, by a key that may rest: each call selects its own
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
    """`route` by another key of its provider. Raises InvalidKey, BadRequest."""
    if key.pk == route.key_id:
        return route
    endpoint = endpoint_of(provider, key)
    # The wire format may have been changed for this call.
    endpoint = replace(endpoint, codec=route.endpoint.codec)
    return _one_of(replace(route, endpoint=endpoint, key_id=key.pk))


def reload_keys(pool: KeyPool) -> None:
    """Reads rows."""
    pool.fill(pool.provider, _KEYS.all(pool.provider.pk))


def route_by(model: LanguageModel, key: ApiKey | None) -> Route:
    """The way to this model by this key, whether or not they are switched on."""
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
    """The one that is held already, where that is the same: thousands of answers of a
    model may be open. What nobody holds is gone, and its key with it."""
    place = (route.model_id, route.key_id, route.endpoint.codec.name)
    held = _held.get(place)
    # To Python, 1 is the same as True.
    if held == route and _written(held) == _written(route):
        return held
    _held[place] = route
    return route


def _written(route: Route) -> str:
    """All that staff may have written as JSON."""
    endpoint = route.endpoint
    return repr((route.defaults, route.capabilities, route.prices, endpoint.options))


_held: WeakValueDictionary[tuple[int | None, int | None, str], Route] = (
    WeakValueDictionary()
)


def endpoint_of(provider: Provider, key: ApiKey | None) -> Endpoint:
    """The account. Raises InvalidKey where the key cannot be decrypted, BadRequest
    where its provider's row makes no sense."""
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
        # Empty for the address in our own code, which the client trusts more.
        base_url="" if provider.address == host.base_url else provider.address,
        headers=provider.headers,
        options=provider.options,
        allow_private_network=provider.allow_private_network,
        route=f"{provider.pk}:{key.pk if key else ''}",
    )
    return host.connect(endpoint)


def capabilities(model: LanguageModel, *, wire: str = "") -> Capabilities:
    """What the model can do, by its row and by what is known of its name."""
    limits = {
        "context_window": model.context_window,
        "max_output_tokens": model.max_output_tokens,
    }
    stated = {name: limit for name, limit in limits.items() if limit is not None}
    overrides = {**model.capabilities, **stated}
    return capabilities_of(model.provider.kind, model.name, overrides, wire=wire)


def _own_words(model: LanguageModel) -> dict[str, Any]:
    """What the staff say of the model in words that we do not know."""
    return {k: v for k, v in model.capabilities.items() if k not in NAMES}


def available(user: Any) -> LanguageModelQuerySet:
    """The models that `user` can choose from, with their providers."""
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
    """The one that can be used; one that cannot, where there is no better."""
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
    key.provider = provider  # as it is asked: the secret must be for its origin
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
