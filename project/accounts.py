"""The providers that the environment names, each with key, model and address.

A provider is named by LLM_PROVIDER or by one of its own variables, which its file in
`llm/providers` declares. What is named must be complete, else the start stops.
The demo needs no naming, only no ENABLE_DEMO=false.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from llm.provider import Option, Provider
from project.environment import ConfigurationError, Environment

DEMO = "demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    kind: str
    api_key: str = field(default="", repr=False)
    model: str = ""  # "": none is known, and none is set up
    base_url: str = ""  # "": the provider's own
    options: Mapping[str, str] = field(default_factory=dict)
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
    found = _Found(env, provider)
    is_chosen = provider.name == chosen
    if is_chosen:
        found.wanted_by = f"LLM_PROVIDER={chosen}"
    elif provider.name == DEMO:
        found.wanted_by = _switch(DEMO)
    if not found.wanted_by:
        return None
    found.require_all()
    return Account(
        kind=provider.name,
        api_key=found.api_key or found.secret,
        model=found.model or provider.default_model,
        base_url=found.base_url,
        options=found.options,
        is_default=is_chosen or (not chosen and found.model != ""),
    )


class _Found:
    """What the environment says of one provider."""

    def __init__(self, env: Environment, provider: Provider) -> None:
        self._provider = provider
        self.api_key = env.api_key(provider.key_env) if provider.key_env else ""
        self.secret = env.api_key(provider.secret_env) if provider.secret_env else ""
        self.model = env.text(provider.model_env, "") if provider.model_env else ""
        self.base_url = env.url(provider.base_url_env) if provider.base_url_env else ""
        self.options = {
            option.name: value
            for option in provider.options
            if option.env and (value := _option(env, option))
        }
        named = {
            provider.key_env: self.api_key,
            provider.secret_env: self.secret,
            provider.model_env: self.model,
            provider.base_url_env: self.base_url,
            **{each.env: self.options.get(each.name) for each in provider.options},
        }
        #: The first variable that is set.
        self.wanted_by = next((name for name, value in named.items() if value), "")

    def require_all(self) -> None:
        """Raises ConfigurationError, which names all that is missing."""
        if self.api_key and self.secret:
            raise ConfigurationError(
                self._provider.secret_env,
                f"{self._provider.key_env} is set as well; remove one of them.",
            )
        if missing := [name for name, value in self._needed() if name and not value]:
            it = "it; set it" if len(missing) == 1 else "them; set them"
            raise ConfigurationError(
                ", ".join(missing),
                f"{self.wanted_by} needs {it} in the environment or .env.",
            )

    def _needed(self) -> Iterator[tuple[str, str]]:
        provider = self._provider
        envs = {option.name: option.env for option in provider.options}
        of_secret = [(envs[name], name) for name in provider.secret_options]
        if self.secret or any(name in self.options for _, name in of_secret):
            for env, name in of_secret:
                yield env, self.options.get(name, "")
            yield provider.secret_env, self.secret
        elif provider.needs_key:
            yield provider.key_env, self.api_key
        if provider.needs_base_url:
            yield provider.base_url_env, self.base_url
        yield provider.model_env, self.model or provider.default_model


def _option(env: Environment, option: Option) -> str:
    value = env.text(option.env, "").strip()
    if value and not option.fits(value):
        raise ConfigurationError(option.env, f"{value!r} is not {option.wanted}.")
    return value


def _switch(kind: str) -> str:
    return f"ENABLE_{_word(kind).upper()}"


def _word(kind: str) -> str:
    return kind.replace("-", "_").lower()
