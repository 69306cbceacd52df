"""Settings of a test run over PostgreSQL alone: several processes would share it
without Redis. A database is made for the run, or for each of its processes."""

from __future__ import annotations

import os
import sys

from tests.scaled import POSTGRES, absent

if reason := absent():
    print(reason, file=sys.stderr)
    raise SystemExit(os.environ.get("CI", "").lower() == "true")

os.environ["DATABASE_URL"] = POSTGRES
os.environ["REDIS_URL"] = ""

from tests.settings import *  # noqa: F403
