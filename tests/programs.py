"""Programs that a test may need and a machine may lack."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: Other names under which systems ship the same program. A headless shell is Chromium
#: without windows, extensions and services: a page costs half the CPU time in it.
NAMES = {
    "chromium": ("chromium-headless-shell", *_BROWSERS),
    "full_chromium": _BROWSERS,
}
#: Debian's folders of PostgreSQL programs, the newest first.
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def find_program(name: str) -> str | None:
    """Its path; CHROMIUM and the like name another one."""
    variable = name.removeprefix("full_").upper()
    candidates = (os.environ.get(variable, ""), *NAMES.get(name, (name,)))
    found = [path for each in candidates if (path := shutil.which(each))]
    beside = [str(path) for each in POSTGRES if (path := each / name).exists()]
    return next(iter([*found, *beside]), None)


def need_program(name: str) -> str:
    """Its path; else the test is skipped, and under CI=true fails."""
    if path := find_program(name):
        return path
    unavailable(f"{name} is not installed")


def unavailable(reason: str) -> NoReturn:
    """Skip the test; under CI=true fail it."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{reason}; under CI=true nothing is skipped for that")
    pytest.skip(reason)
