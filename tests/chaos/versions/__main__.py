"""Replace an earlier version by this one while turns run, both side by side for a time.

    python -m tests.chaos.versions [--minutes 60] [--pace 2] [--old COMMIT] [--seed N]

`--pace`: the least seconds between two turns. Needs PostgreSQL and Redis as `make
chaos` does. Prints counts and violations; ends with 1 where a law was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from pathlib import Path

import django

from tests.scaled import absent

from .old_version import OLD, unpack


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--pace", type=float, default=2)
    parser.add_argument("--turns", type=int, default=200, help="between two reports")
    parser.add_argument("--old", default=OLD, help="the earlier version's commit")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(10**6)
    )
    arguments = parser.parse_args()
    if reason := absent():
        print(reason, file=sys.stderr)
        return 2
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from .upgrade import upgrade

    print(f"seed {arguments.seed}, from {arguments.old}", flush=True)
    with tempfile.TemporaryDirectory(prefix="parley-versions-") as folder:
        run = Path(folder) / "run"
        run.mkdir()
        old = unpack(Path(folder) / "code", arguments.old)
        report = asyncio.run(
            upgrade(
                run,
                old,
                arguments.seed,
                turns=arguments.turns,
                seconds=60 * arguments.minutes,
                pace=arguments.pace,
            )
        )
    print(*report.lines(), sep="\n")
    return int(bool(report.violations))


if __name__ == "__main__":
    sys.exit(main())
