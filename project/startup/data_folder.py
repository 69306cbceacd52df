"""Private files and folders, the lock on a data folder, and the limit of open files."""

from __future__ import annotations

import fcntl
import os
import resource
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

#: With a higher limit, some programs take long to close inherited descriptors.
_OPEN_FILES = 65_536


class InUse(Exception):
    """Another process has locked the data folder."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(f"{folder} is in use by process {holder}")


def create_private(path: Path, make: Callable[[], str] = str) -> None:
    """Create a file of mode 0600 with the result of `make`, atomically.

    An existing file is not changed.
    """
    if path.exists():
        return
    with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:  # mode 0600
        file.write(make())
        file.flush()
        with suppress(FileExistsError):  # another process was faster
            os.link(file.name, path)


def make_private(path: Path) -> None:
    """Remove the rights of group and others, if this user owns the file."""
    status = path.stat()
    if status.st_mode & 0o077 and status.st_uid == os.geteuid():
        path.chmod(status.st_mode & 0o700)


def lock_folder(folder: Path) -> IO[str]:
    """Lock the folder until the returned file is closed or this process ends.

    Raises InUse. It is a lock of the kernel, which releases it after a crash, too.
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


def raise_open_file_limit() -> None:
    """Raise the limit of open files to the hard limit, at most to 65,536.

    A stream takes two, one for the client's connection and one for the provider's; the
    default limit is often 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
