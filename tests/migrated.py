"""A data folder with all tables, made once and copied: migrations take seconds.

It lies in `.pytest_cache` until a migration, a model or a pinned package changes, and
serves all test workers and later runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.serving import BASE, ServerProcess

CACHE = BASE / ".pytest_cache" / "migrated"
APPS = ("llm", "tools", "conversations", "project")
#: What decides which tables there are.
SOURCES = ("migrations/*.py", "models.py", "models/**/*.py", "db/*.py", "triggers.py")


def copy_migrated_data(target: Path) -> None:
    """Copy the data folder to `target`, which must not exist."""
    CACHE.mkdir(parents=True, exist_ok=True)
    data = CACHE / fingerprint()
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers wait for the first
        if not data.exists():
            _remove_others()
            unfinished = CACHE / f"unfinished-{os.getpid()}"
            server = ServerProcess(unfinished)
            server.manage("migrate", "--skip-checks", "--verbosity=0")
            unfinished.rename(data)
        # Before another branch's run, which waits for the lock, may remove it.
        shutil.copytree(data, target)


def fingerprint(base: Path = BASE) -> str:
    """Of the migrations, models and pinned packages."""
    found = hashlib.sha256((base / "requirements-dev.txt").read_bytes())
    for path in _list_sources(base):
        found.update(str(path.relative_to(base)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _list_sources(base: Path) -> Iterator[Path]:
    for app in APPS:
        for pattern in SOURCES:
            yield from sorted((base / app).glob(f"**/{pattern}"))


def _remove_others() -> None:
    """All but the newest: two branches are often tested by turns."""
    for unfinished in CACHE.glob("unfinished-*/"):  # of runs that were killed
        shutil.rmtree(unfinished)
    folders = sorted(CACHE.glob("*/"), key=lambda path: path.stat().st_mtime)
    for folder in folders[:-1]:
        shutil.rmtree(folder)
