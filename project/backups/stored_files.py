"""Uploaded files as backups copy them: from a storage into a folder, and back."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from django.core.files.base import File
from django.core.files.storage import default_storage


def list_names(folder: str = "") -> Iterator[str]:
    """The names of all files in the storage."""
    folders, files = default_storage.listdir(folder)
    for name in files:
        yield str(PurePosixPath(folder, name))
    for name in folders:
        if name not in ("", ".", ".."):
            yield from list_names(str(PurePosixPath(folder, name)))


def download(names: Iterable[str], folder: Path) -> int:
    """Copy files into the folder, and return their number. Raises OSError.

    A file that is deleted meanwhile is left out, as are names that lead out of the
    folder, which this server never gives.
    """
    count = 0
    for name in names:
        path = folder / name
        if not _is_below(path, folder):
            continue
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            stored = default_storage.open(name)
        except FileNotFoundError:
            continue
        with stored, path.open("wb") as copy:
            shutil.copyfileobj(stored, copy)
        count += 1
    return count


def upload(folder: Path) -> Iterator[tuple[str, bool]]:
    """Copy the folder's files into the storage; those that are there with the same size
    are left as they are. Yields each name, and whether it was copied. Raises
    OSError."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.is_symlink():
            continue
        name = path.relative_to(folder).as_posix()
        if _size_of(name) == path.stat().st_size:
            yield name, False
            continue
        with path.open("rb") as file:
            default_storage.save(name, File(file, name))
        yield name, True


def _size_of(name: str) -> int | None:
    try:
        return default_storage.size(name)
    except FileNotFoundError:
        return None


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
