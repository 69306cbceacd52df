"""Django apps that a deployment adds by PARLEY_APPS, without editing the settings.

`PARLEY_APPS=mycompany.tools` names an app whose label would be "tools", as that of
Parley's own app is. Unless such an app has an `AppConfig` of its own, it gets the label
`mycompany_tools`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.util import find_spec

from django.apps import AppConfig
from django.utils.module_loading import import_string

from llm.provider import Provider
from llm.providers import find_providers
from project.environment.configuration_error import ConfigurationError
from project.environment.variables import Environment


def read_added_apps(env: Environment, variable: str) -> list[str]:
    """Names of modules, or of `AppConfig` classes. Raises ConfigurationError."""
    names = env.words(variable, [])
    for name in names:
        with _loading(variable, name):
            is_importable = _is_importable(name)
        if not is_importable:
            raise ConfigurationError(
                variable,
                f"{name!r} cannot be imported; install its package, or name its folder"
                " in PYTHONPATH.",
            )
    return list(dict.fromkeys(names))


def list_app_entries(added: Sequence[str], apps: Collection[str]) -> Iterator[str]:
    """Entries of INSTALLED_APPS for the added apps that are not among `apps`."""
    labels = {each.rpartition(".")[2] for each in apps}
    for name in added:
        label = name.rpartition(".")[2]
        if name in apps:
            continue
        is_taken = label in labels and not _has_own_config(name)
        yield _configure(name) if is_taken else name
        labels.add(label)


def find_all_providers(added: Sequence[str], variable: str) -> dict[str, Provider]:
    """Parley's providers and those of the added apps. Raises ConfigurationError."""
    names = tuple(_find_module(entry, variable) for entry in added)
    with _loading(variable, ",".join(added)):
        try:
            return find_providers(names)
        except ValueError as exc:
            raise ConfigurationError(variable, str(exc)) from exc


def check_added_apps(added: Sequence[str], apps: Sequence[str], variable: str) -> None:
    """Raise ConfigurationError where Django could not load an added app, or two of all
    `apps` would have the same label. The settings must be complete."""
    for name in added:
        with _loading(variable, name):
            AppConfig.create(name)
    if not added:
        return
    labels = Counter(AppConfig.create(entry).label for entry in apps)
    [(label, count)] = labels.most_common(1)
    if count > 1:
        raise ConfigurationError(
            variable,
            f"two apps have the label {label!r}; set another one in the AppConfig.",
        )


@contextmanager
def _loading(variable: str, name: str) -> Generator[None, None, None]:
    """Import code of an added package. Raises ConfigurationError.

    Importing runs the package's own code, which may raise anything. The server must
    then end with one line that names the package, and not with a traceback.
    """
    try:
        yield
    except ConfigurationError:
        raise
    except Exception as exc:
        cause = " ".join(f"{type(exc).__name__}: {exc}".split())
        raise ConfigurationError(
            variable, f"{name!r} cannot be loaded ({cause})."
        ) from exc


def _find_module(entry: str, variable: str) -> str:
    """The name of the app's module, which an `AppConfig` class states."""
    if _find(entry):
        return entry
    with _loading(variable, entry):
        config = import_string(entry)
    return str(getattr(config, "name", entry))


def _is_importable(name: str) -> bool:
    """Whether a module has this name, or one that may define a class of this name."""
    parent, _, last = name.rpartition(".")
    return _find(name) or (last[:1].isupper() and _find(parent))


def _find(module: str) -> bool:
    try:  # `find_spec` imports the packages that contain the module
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _has_own_config(name: str) -> bool:
    """Whether it is an `AppConfig` class, or an app with `apps.py`.

    The app is not imported: it may import models, which need the settings.
    """
    if not _find(name):
        return True
    spec = find_spec(name)
    folders = spec.submodule_search_locations if spec else None
    return bool(folders) and PathFinder.find_spec(f"{name}.apps", folders) is not None


def _configure(name: str) -> str:
    """The path of a new `AppConfig` class whose label contains the package's name."""
    label = name.replace(".", "_")
    config = type(label, (AppConfig,), {"name": name, "label": label})
    setattr(sys.modules[__name__], label, config)
    return f"{__name__}.{label}"
