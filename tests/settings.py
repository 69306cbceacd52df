"""Settings of the test run: the project's own, over throw-away data."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("PARLEY_DATA", tempfile.mkdtemp(prefix="parley-test-"))
os.environ["PARLEY_READ_DOTENV"] = "0"

from project.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
INSTALLED_APPS = [*INSTALLED_APPS, "tests.emptying"]  # noqa: F405
AUTO_TITLES = False  # a title is one more call of the scripted hosts
