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

_worker = os.environ.get("PYTEST_XDIST_WORKER", "gw9").removeprefix("gw")

os.environ["DATABASE_URL"] = POSTGRES
os.environ["REDIS_URL"] = f"{REDIS.rpartition('/')[0]}/{1 + int(_worker) % 15}"

from tests.settings import *  # noqa: E402, F403
