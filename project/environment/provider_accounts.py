"""Accounts: the providers that environment variables configure.

LLM_PROVIDER or one of a provider's own variables configures an account; the provider's
file in `llm/providers` declares these variables. If a required variable is missing, the
start fails. The demo needs no variable, and ENABLE_DEMO=false disables it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from llm.provider import Option, Provider
from project.environment.configuration_error import ConfigurationError
from project.environment.variables import Environment

DEMO = "demo"
#: Its model is the default of a first start with several keys and no LLM_PROVIDER.
PREFERRED = "openai"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    kind: str
    api_key: str = field(default="", repr=False)
    model: str = ""  # "": the first start creates no model
    base_url: str = ""  # "": the provider's default
    options: Mapping[str, str] = field(default_factory=dict)
    names_model: bool = False  # a variable names the model
    #: LLM_PROVIDER names this account; or nothing does, and a variable names its model.
    is_default: bool = False


def read_disabled_providers(env: Environment, kinds: Iterable[str]) -> frozenset[str]:
    """Kinds with `ENABLE_<KIND>=false`, in the spelling of `_to_identifier`."""
    return frozenset(
        _to_identifier(kind)
        for kind in kinds
        if not env.flag(_enable_variable(kind), True)
    )


def read_accounts(
    env: Environment, providers: Mapping[str, Provider], disabled: frozenset[str]
) -> list[Account]:
    """All accounts, the demo last. A first start makes the first one's model the
    default: that of LLM_PROVIDER, else OpenAI's, else one whose model is named."""
    chosen = env.choice("LLM_PROVIDER", "", providers)
    if _to_identifier(chosen) in disabled:
        raise ConfigurationError(
            _enable_variable(chosen),
            f"LLM_PROVIDER={chosen} needs this provider; remove the variable or set it"
            " to true.",
        )
    accounts = [
        account
        for kind, provider in providers.items()
        if _to_identifier(kind) not in disabled
        and (account := _read_account(env, provider, chosen))
    ]
    return sorted(accounts, key=partial(_rank, chosen=chosen))


def _rank(account: Account, *, chosen: str) -> tuple[bool, ...]:
    kind = account.kind
    return kind != chosen, kind == DEMO, kind != PREFERRED, not account.is_default


def _read_account(env: Environment, provider: Provider, chosen: str) -> Account | None:
    variables = _ProviderVariables(env, provider)
    is_chosen = provider.name == chosen
    if is_chosen:
        variables.required_by = f"LLM_PROVIDER={chosen}"
    elif provider.name == DEMO:
        variables.required_by = _enable_variable(DEMO)
    if not variables.required_by:
        return None
    variables.require_all()
    return Account(
        kind=provider.name,
        api_key=variables.api_key or variables.secret,
        model=variables.model or provider.default_model,
        base_url=variables.base_url,
        options=variables.options,
        names_model=variables.model != "",
        is_default=is_chosen or (not chosen and variables.model != ""),
    )


class _ProviderVariables:
    """Values of one provider's environment variables."""

    def __init__(self, env: Environment, provider: Provider) -> None:
        self._provider = provider
        self.api_key = env.api_key(provider.key_env) if provider.key_env else ""
        self.secret = env.api_key(provider.secret_env) if provider.secret_env else ""
        self.model = env.text(provider.model_env, "") if provider.model_env else ""
        self.base_url = env.url(provider.base_url_env) if provider.base_url_env else ""
        self.options = {
            option.name: value
            for option in provider.options
            if option.env and (value := _read_option(env, option))
        }
        values = {
            provider.key_env: self.api_key,
            provider.secret_env: self.secret,
            provider.model_env: self.model,
            provider.base_url_env: self.base_url,
            **{each.env: self.options.get(each.name) for each in provider.options},
        }
        #: The variable that configures the account: here the first one that is set.
        self.required_by = next((name for name, value in values.items() if value), "")

    def require_all(self) -> None:
        """Raises ConfigurationError, which names all missing variables."""
        if self.api_key and self.secret:
            raise ConfigurationError(
                self._provider.secret_env,
                f"{self._provider.key_env} is set as well; remove one of them.",
            )
        if missing := [
            name for name, value in self._requirements() if name and not value
        ]:
            pronoun = "it; set it" if len(missing) == 1 else "them; set them"
            raise ConfigurationError(
                ", ".join(missing),
                f"{self.required_by} needs {pronoun} in the environment or .env.",
            )

    def _requirements(self) -> Iterator[tuple[str, str]]:
        """Names and values of the required variables. A name may be ""."""
        provider = self._provider
        envs = {option.name: option.env for option in provider.options}
        secret_options = [(envs[name], name) for name in provider.secret_options]
        if self.secret or any(name in self.options for _, name in secret_options):
            for env, name in secret_options:
                yield env, self.options.get(name, "")
            yield provider.secret_env, self.secret
        elif provider.needs_key:
            yield provider.key_env, self.api_key
        if provider.needs_base_url:
            yield provider.base_url_env, self.base_url
        yield provider.model_env, self.model or provider.default_model


def _read_option(env: Environment, option: Option) -> str:
    value = env.text(option.env, "").strip()
    if value and not option.fits(value):
        raise ConfigurationError(option.env, f"{value!r} is not {option.wanted}.")
    return value


def _enable_variable(kind: str) -> str:
    return f"ENABLE_{_to_identifier(kind).upper()}"


def _to_identifier(kind: str) -> str:
    return kind.replace("-", "_").lower()
