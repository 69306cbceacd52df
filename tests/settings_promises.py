"""Settings for durability tests; the environment switches on each disturbance."""

from __future__ import annotations

import os

from tests.settings_crash import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.hanging.apps.HangingConfig"]  # noqa: F405
DROP_HINTS = float(os.environ.get("DROP_HINTS", "0"))
BLOCKED = 10.0  # seconds for which SIGUSR1 blocks the event loop
