"""Files and folders for this user's eyes only, and the lock on a data folder."""

from __future__ import annotations

import fcntl
import os
import resource
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

_OPEN = 65_536  # files; beyond that some programs take long to close what they inherit


class InUse(Exception):
    """Another process holds the folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(f"{folder} is in use by process {holder}")


def create_private(path: Path, make: Callable[[], str] = str) -> None:
    """Write what `make` gives to a new file of mode 0600, whole or not at all.

    A file that is there already stays as it is.
    """
    if path.exists():
        return
    with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:  # of mode 0600
        file.write(make())
        file.flush()
        with suppress(FileExistsError):  # another process was faster
            os.link(file.name, path)


def make_private(path: Path) -> None:
    """Take all rights from group and others, where the file is ours."""
    status = path.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        path.chmod(status.st_mode & 0o700)


def lock_folder(folder: Path) -> IO[str]:
    """Lock the folder until the file returned is closed or this process ends.

    Raises InUse. The kernel keeps the lock, so that a crash leaves none behind.
    """
    create_private(folder / "lock")
    file = (folder / "lock").open("r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            raise InUse(folder, file.read().strip() or "unknown") from None
    file.truncate()
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def allow_many_open() -> None:
    """As many open files as the system lets us have.

    A stream takes two, its client's connection and its provider's, and what a process
    may have at first is often a thousand.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN if hard == resource.RLIM_INFINITY else min(hard, _OPEN)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
