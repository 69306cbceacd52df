"""Settings of a server that crashes at the point `CRASH_AT`."""

from __future__ import annotations

import os

from tests.settings_served import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.crashing"]  # noqa: F405
MIDDLEWARE = [*MIDDLEWARE, "tests.crashing.middleware.crash_at_the_door"]  # noqa: F405
CRASH_AT = os.environ.get("CRASH_AT", "")
