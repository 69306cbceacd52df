"""The providers that the environment names, each with key, model and address.

A provider is named by LLM_PROVIDER or by one of its own variables (`key_env`,
`model_env`, `base_url_env`). What is named must be complete, else the start stops.
The demo needs no naming, only no ENABLE_DEMO=false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llm.provider import Provider
from project.environment import ConfigurationError, Environment

DEMO = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    kind: str
    api_key: str = field(default="", repr=False)
    model: str = ""  # "": none is known, and none is set up
    base_url: str = ""  # "": the provider's own
    #: The environment says so outright, and so decides at every start.
    is_default: bool = False


def disabled_providers(env: Environment, kinds: Iterable[str]) -> frozenset[str]:
    """What `ENABLE_<KIND>=false` switches off, in the spelling of the variable."""
    return frozenset(_word(kind) for kind in kinds if not env.flag(_switch(kind), True))


def accounts(
    env: Environment, providers: Mapping[str, Provider], disabled: frozenset[str]
) -> list[Account]:
    """Those to set up at the start: LLM_PROVIDER's first, the demo last."""
    chosen = env.choice("LLM_PROVIDER", "", providers)
    if _word(chosen) in disabled:
        raise ConfigurationError(
            _switch(chosen), f"LLM_PROVIDER={chosen} needs it; remove it or set true."
        )
    found = [
        account
        for kind, provider in providers.items()
        if _word(kind) not in disabled and (account := _account(env, provider, chosen))
    ]
    return sorted(found, key=lambda each: (each.kind != chosen, each.kind == DEMO))


def _account(env: Environment, provider: Provider, chosen: str) -> Account | None:
    api_key = env.api_key(provider.key_env) if provider.key_env else ""
    model = env.text(provider.model_env, "") if provider.model_env else ""
    base_url = env.url(provider.base_url_env) if provider.base_url_env else ""
    is_chosen = provider.name == chosen
    wanted_by = (
        (is_chosen and f"LLM_PROVIDER={chosen}")
        or (api_key and provider.key_env)
        or (model and provider.model_env)
        or (base_url and provider.base_url_env)
        or (provider.name == DEMO and _switch(DEMO))
    )
    if not wanted_by:
        return None
    is_default = is_chosen or (not chosen and model != "")
    model = model or provider.default_model
    if provider.needs_key:
        _require(provider.key_env, api_key, wanted_by)
    if provider.needs_base_url:
        _require(provider.base_url_env, base_url, wanted_by)
    _require(provider.model_env, model, wanted_by)
    return Account(
        kind=provider.name,
        api_key=api_key,
        model=model,
        base_url=base_url,
        is_default=is_default,
    )


def _require(name: str, value: str, wanted_by: str) -> None:
    if name and not value:
        raise ConfigurationError(
            name, f"{wanted_by} needs it; set it in the environment or .env."
        )


def _switch(kind: str) -> str:
    return f"ENABLE_{_word(kind).upper()}"


def _word(kind: str) -> str:
    return kind.replace("-", "_").lower()
