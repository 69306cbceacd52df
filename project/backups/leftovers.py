"""Folders that a killed backup or restore leaves: they hold secrets, and take room."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"  # suffix of the folder of a backup until it is complete
_AGE = 24 * 3600  # seconds, after which a folder that nobody has locked is left over


@contextmanager
def protect_folder(folder: Path) -> Iterator[None]:
    """Lock the folder, by a lock of the kernel that ends with the process."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # the file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def find_leftovers(folder: Path, pattern: str) -> list[Path]:
    """Folders in `folder` that match, are older than a day and are not in use."""
    return [path for path in sorted(folder.glob(pattern)) if _is_left(path)]


def delete_leftovers(folder: Path, pattern: str) -> list[Path]:
    """Returns those that were deleted."""
    found = find_leftovers(folder, pattern)
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return [path for path in found if not path.exists()]


def _is_left(path: Path) -> bool:
    try:
        if path.is_symlink() or time.time() - path.stat().st_mtime < _AGE:
            return False
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # no folder, another user's, or gone meanwhile
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # in use, or the file system has no locks
        return False
    finally:
        os.close(descriptor)
    return True
