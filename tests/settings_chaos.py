"""Settings of servers whose models are the chaos provider's."""

from __future__ import annotations

from project.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.chaos"]  # noqa: F405
