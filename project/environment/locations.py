"""Locations of Parley's own files and of its data, in a checkout or installed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).resolve().parent.parent  # the folder `project`
_CHECKOUT = _PACKAGE.parent
#: Where the wheel has the checkout's folders `templates` and `static`; see
#: pyproject.toml.
_INSTALLED_FILES = _PACKAGE / "assets"


@dataclass(frozen=True, slots=True)
class Locations:
    base: Path  # has `.env` and, by default, the data folder
    files: Path  # has the folders `templates` and `static`
    project: Path  # the package `project`, which has the translations
    command: str  # what a person types before the name of a management command
    start: str  # the command that starts a server


def find_locations() -> Locations:
    """A checkout contains its data; the wheel's is in the platform's usual folder."""
    if _INSTALLED_FILES.is_dir():
        base = platformdirs.user_data_path("parley", appauthor=False)
        return Locations(base, _INSTALLED_FILES, _PACKAGE, "parley", "parley serve")
    return Locations(_CHECKOUT, _CHECKOUT, _PACKAGE, "manage.py", "make run")
