"""The providers, one file each, which declares `PROVIDER`.

New files are found without being registered, and so are the providers of other apps:
`llm_providers.py` of an app, or the files of its package `llm_providers`.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from django.apps import apps

from llm.provider import Provider

_APP_MODULE = "llm_providers"


def all_providers() -> dict[str, Provider]:
    """Every provider by name: Parley's, and those of the installed apps.

    A module without `PROVIDER` fails at start-up.
    """
    return _find_in_installed_apps() if apps.apps_ready else find_providers(())


@cache
def find_providers(app_names: tuple[str, ...]) -> dict[str, Provider]:
    """Parley's providers and those of these apps, by name.

    Raises ValueError if two have the same name.
    """
    own = import_module(__name__)
    found = {each.name: each for each in _providers_in(own)}
    for app_name in app_names:
        for provider in _providers_of_app(app_name):
            if found.setdefault(provider.name, provider) is not provider:
                raise ValueError(
                    f"{app_name} has a provider {provider.name!r}, as Parley or another"
                    " app has; rename it."
                )
    return found


def choices() -> list[tuple[str, str]]:
    return sorted((name, provider.label) for name, provider in all_providers().items())


@cache
def _find_in_installed_apps() -> dict[str, Provider]:
    return find_providers(tuple(app.name for app in apps.get_app_configs()))


def _providers_of_app(app_name: str) -> Iterable[Provider]:
    name = f"{app_name}.{_APP_MODULE}"
    return _providers_in(import_module(name)) if _exists(name) else ()


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the app is no package
        return False


def _providers_in(module: ModuleType) -> Iterator[Provider]:
    """A module's `PROVIDER`, or those of a package's modules, sorted by name."""
    if hasattr(module, "PROVIDER") or not hasattr(module, "__path__"):
        yield module.PROVIDER
        return
    for name in sorted(info.name for info in pkgutil.iter_modules(module.__path__)):
        yield import_module(f"{module.__name__}.{name}").PROVIDER
