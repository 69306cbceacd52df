"""First start: create an administrator, the tools and the environment's providers.

A later start does not change existing rows, with two exceptions for variables that it
would otherwise silently ignore: key, address and options of the environment replace the
stored ones, and LLM_PROVIDER or a provider's model variable set the default model. A
default model that they name too is not changed, nor is one that they do not contradict,
even if a new release prefers another model.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import connection, transaction

from conversations.models.preset import Preset
from llm.db.statements import allow_long_idle
from llm.demo.key import demo_key
from llm.models import ApiKey, LanguageModel, Provider, is_disabled
from llm.providers import all_providers
from project.accounts.models import RequiredPasswordChange
from project.environment.configuration_error import ConfigurationError
from project.environment.provider_accounts import DEMO, Account
from project.startup.single_sign_on import store_single_sign_on
from tools.models import Tool

ADMIN = "admin"
#: Tools of the demo's preset.
DEMO_TOOLS = [
    *("calculator", "current_time", "weather_demo"),
    *("remember", "recall", "forget"),
]
KEY_LABEL = "environment"  # label of the keys that the environment sets
_PASSWORD_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"  # no similar characters


@dataclass(frozen=True, slots=True)
class Outcome:
    login: str  # a sentence for the terminal: how to sign in
    has_new_admin: bool  # `login` contains the password if it was generated
    has_model: bool


@transaction.atomic
def first_start() -> Outcome:
    """Create what is missing, in one transaction."""
    if connection.vendor == "postgresql":
        allow_long_idle()  # a busy machine takes seconds to hash the password
    Tool.objects.sync()
    is_new, login = _ensure_admin()
    if settings.SINGLE_SIGN_ON:
        store_single_sign_on(settings.SINGLE_SIGN_ON)
    models = [_ensure_account(account) for account in settings.ACCOUNTS]
    _choose_default([each for each in models if each])
    default = LanguageModel.objects.filter(is_default=True).first()
    if default and settings.LLM_TEMPERATURE is not None:
        _set_option(default, "temperature", settings.LLM_TEMPERATURE)
    return Outcome(login, has_new_admin=is_new, has_model=default is not None)


# The admin


def _ensure_admin() -> tuple[bool, str]:
    """Return whether an administrator was created, and how to sign in."""
    users = User.objects
    superusers = users.filter(is_superuser=True, is_active=True)
    if superuser := superusers.order_by("pk").first():
        name = superuser.get_username()
        reset = f"{settings.LOCATIONS.command} changepassword {name}"
        return False, f"Sign in as {name}. (Forgotten? {reset})"
    if users.filter(username=ADMIN).exists():
        command = f"{settings.LOCATIONS.command} createsuperuser"
        return False, f"There is no administrator: run {command}."
    return True, _create_admin()


def _create_admin() -> str:
    user = User(username=ADMIN, is_staff=True, is_superuser=True)
    if password := settings.ADMIN_PASSWORD:
        _validate(password, user)
        login = f"Sign in as {ADMIN} with the password of PARLEY_ADMIN_PASSWORD."
    else:
        password = _new_password()
        login = f"Sign in as {ADMIN} with the password {password} (shown once)."
    user.set_password(password)
    user.save()
    if not settings.ADMIN_PASSWORD:  # it was printed, so it is in a log or a screenshot
        RequiredPasswordChange.objects.create(user=user)
    return login


def _validate(password: str, user: User) -> None:
    try:
        validate_password(password, user)
    except ValidationError as exc:
        raise ConfigurationError(
            "PARLEY_ADMIN_PASSWORD", " ".join(exc.messages)
        ) from None


def _new_password() -> str:
    """80 random bits in groups of four characters, easy to copy."""
    letters = [secrets.choice(_PASSWORD_LETTERS) for _ in range(16)]
    return "-".join("".join(letters[i : i + 4]) for i in range(0, 16, 4))


# Providers, keys, models


@dataclass(frozen=True, slots=True)
class _AccountModel:
    account: Account
    model: LanguageModel
    is_new: bool


def _ensure_account(account: Account) -> _AccountModel | None:
    provider, is_new_provider = _ensure_provider(account)
    if api_key := demo_key() if account.kind == DEMO else account.api_key:
        _ensure_key(provider, api_key, account)
    if not account.model:
        return None
    if is_new_provider and account.kind == DEMO:
        return _AccountModel(account, _create_demo(provider, account), is_new=True)
    if not account.names_model and (known := _find_model(provider, account.model)):
        return _AccountModel(account, known, is_new=False)
    model, is_new = provider.models.get_or_create(
        name=account.model, defaults={"label": _model_label(account)}
    )
    return _AccountModel(account, model, is_new)


def _find_model(provider: Provider, usual: str) -> LanguageModel | None:
    """The model of an account whose model no variable names; None before its first
    start. A release may have another usual model than the one before."""
    rows = provider.models.order_by("-enabled", "pk")
    return (
        rows.filter(is_default=True).first()
        or rows.filter(name=usual).first()
        or rows.first()
    )


def _create_demo(provider: Provider, account: Account) -> LanguageModel:
    """The demo's model, and a preset with it and tools, those over memories too."""
    model: LanguageModel = provider.models.create(
        name=account.model, label=_model_label(account)
    )
    preset, is_new = Preset.objects.get_or_create(
        name=DEMO,
        defaults={
            "label": "Demo",
            "description": "A script, no AI, with tools and memories.",
            "language_model": model,
        },
    )
    if is_new:
        preset.tools.set(Tool.objects.filter(name__in=DEMO_TOOLS))
    return model


def _ensure_provider(account: Account) -> tuple[Provider, bool]:
    """Return the row, and whether it is new."""
    provider, is_new = Provider.objects.get_or_create(
        name=account.kind,
        defaults={
            "kind": account.kind,
            "allow_private_network": account.kind == DEMO,
        },
    )
    _update_address(provider, account)
    return provider, is_new


def _update_address(provider: Provider, account: Account) -> None:
    """Set the address and options that the environment names."""
    base_url, options = provider.base_url, {**provider.options, **account.options}
    if account.base_url:
        tidy = all_providers()[account.kind].tidy
        base_url, options = tidy(account.base_url, options)
    if (base_url, options) == (provider.base_url, provider.options):
        return
    if base_url != provider.base_url:
        # The address comes from the environment, so it may be in a private network.
        provider.allow_private_network = True
    provider.base_url, provider.options = base_url, options
    provider.save(update_fields=["base_url", "allow_private_network", "options"])


def _ensure_key(provider: Provider, api_key: str, account: Account) -> None:
    """The environment's key, for the address that the environment names.

    If it names none, the key is not sent to an address that staff have set since the
    key was entered: staff who may edit providers may lack the permission to see keys.
    """
    origin: str | None
    key = provider.keys.filter(label=KEY_LABEL).first()
    if key is None:
        key = ApiKey(provider=provider, label=KEY_LABEL)
        origin = _environment_origin(account)
    else:
        origin = key.entered_for
    if account.base_url or origin is None:
        origin = provider.origin
    if key.pk and key.is_entered_for(api_key, origin):
        return
    key.enter(api_key, origin)
    key.forget_refusals()
    key.last_error = ""
    key.save()


def _environment_origin(account: Account) -> str:
    """The provider's origin according to the environment alone."""
    return Provider(kind=account.kind, options=account.options).origin


def _model_label(account: Account) -> str:
    return all_providers()[DEMO].label if account.kind == DEMO else ""


# The default model


def _choose_default(models: list[_AccountModel]) -> None:
    choice = _find_default(models)
    if choice and not choice.model.is_default:
        choice.model.make_default()


def _find_default(models: list[_AccountModel]) -> _AccountModel | None:
    """Return the account whose model becomes the default; None changes nothing.

    An upgrade changes nothing: if several variables name a model and one of these is
    the default, it stays.
    """
    named = [each for each in models if each.account.is_default]
    if any(each.model.is_default for each in named):
        return None
    if named and named[0] is models[0]:
        return named[0]
    defaults = LanguageModel.objects.filter(is_default=True)
    default = defaults.select_related("provider").first()
    if default is None or is_disabled(default.provider.kind):
        return models[0] if models else None
    if default.provider.kind == DEMO:  # the demo's model is replaced, by a new one only
        return next((each for each in models if each.is_new), None)
    return None


def _set_option(model: LanguageModel, name: str, value: object) -> None:
    if model.options.get(name) != value:
        model.options[name] = value
        model.save(update_fields=["options"])
