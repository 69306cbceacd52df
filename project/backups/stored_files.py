"""Uploaded files as backups copy them: from a storage into a folder, and back."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

from django.apps import apps
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db.models import FileField

RESTORING, REPLACED = "restoring-", "replaced-"  # folders of the command `restore`


def is_of_restore(name: str) -> bool:
    """Whether a folder beside the uploaded files has that name."""
    return name.startswith((RESTORING, REPLACED))


def list_names(folder: str = "") -> Iterator[str]:
    """The names of all files in the storage."""
    folders, files = default_storage.listdir(folder)
    for name in files:
        yield str(PurePosixPath(folder, name))
    for name in folders:
        is_foreign = not folder and is_of_restore(name)
        if name not in ("", ".", "..") and not is_foreign:
            yield from list_names(str(PurePosixPath(folder, name)))


def total_size() -> int:
    """Bytes of the files in the bucket. Raises OSError."""
    size: int = default_storage.total_size()  # type: ignore[attr-defined]
    return size


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


def upload(folder: Path) -> Iterator[str]:
    """Copy the folder's files into the storage, over what is there. Yields each name.
    Raises OSError."""
    for path, name in _files_below(folder):
        _save(path, name)
        yield name


def upload_missing(folder: Path) -> Iterator[Literal["copied", "known", "unnamed"]]:
    """Copy those of the folder's files that a row names, unless the storage has them
    with the same size. Yields what became of each file. Raises OSError.

    It may run beside the server: a file that is erased during its copy is not brought
    back. A row that is deleted after the second look has its file deleted too.
    """
    for path, name in _files_below(folder):
        if not _is_named(name):
            yield "unnamed"
        elif _size_of(name) == path.stat().st_size:
            yield "known"
        else:
            _save(path, name)
            if _is_named(name):
                yield "copied"
            else:
                default_storage.delete(name)
                yield "unnamed"


def _files_below(folder: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            yield path, path.relative_to(folder).as_posix()


def _save(path: Path, name: str) -> None:
    with path.open("rb") as file:
        default_storage.save(name, File(file, name))


def _is_named(name: str) -> bool:
    """Whether a row of any model has the file."""
    return any(
        model._default_manager.filter(**{field.name: name}).exists()
        for model in apps.get_models()
        for field in model._meta.fields
        if isinstance(field, FileField)
    )


def _size_of(name: str) -> int | None:
    try:
        return default_storage.size(name)
    except FileNotFoundError:
        return None


def _is_below(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
