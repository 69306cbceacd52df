"""The providers, one file each, which declares `PROVIDER`.

New files are found without being registered.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

from llm.provider import Provider


@cache
def all_providers() -> dict[str, Provider]:
    """Every provider by name. A module without `PROVIDER` fails at start-up."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = (import_module(f"{__name__}.{name}") for name in names)
    return {module.PROVIDER.name: module.PROVIDER for module in modules}


def choices() -> list[tuple[str, str]]:
    return sorted((name, provider.label) for name, provider in all_providers().items())
