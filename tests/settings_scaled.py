"""Settings of a test run over PostgreSQL and Redis.

A database is made for the run, or for each of its processes; each has a Redis database
of its own.
"""

from __future__ import annotations

import os
import sys

from tests.scaled import POSTGRES, REDIS, absent

if reason := absent():
    print(reason, file=sys.stderr)
    raise SystemExit(os.environ.get("CI", "").lower() == "true")

os.environ["DATABASE_URL"] = POSTGRES
os.environ["REDIS_URL"] = REDIS

from tests.settings import *  # noqa: F403
