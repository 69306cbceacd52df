"""Settings of the test run: the project's own, over throw-away data."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("PARLEY_DATA", tempfile.mkdtemp(prefix="parley-test-"))
os.environ["PARLEY_READ_DOTENV"] = "0"

from project.settings import *  # noqa: F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
