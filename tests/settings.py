"""Settings of the test run: the project's own, over throw-away data."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("PARLEY_DATA", tempfile.mkdtemp(prefix="parley-test-"))
os.environ["PARLEY_READ_DOTENV"] = "0"

from project.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MIDDLEWARE = [
    name.replace("whitenoise.middleware.", "tests.static_files.Shared")
    for name in MIDDLEWARE  # noqa: F405
]
INSTALLED_APPS = [*INSTALLED_APPS, "tests.emptying"]  # noqa: F405
READING_NEEDS_REASON = False  # tests/audit/test_reading.py asks for it
AUTO_TITLES = False  # a title is one more call of the scripted hosts
# A loaded machine is slow, not wrong; tests of overload set their limits.
MAX_LAG = MAX_START_WAIT = 0
