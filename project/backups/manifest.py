"""The manifest of a backup: its files with their checksums, its migrations, its seal.

The seal is the checksum of all that, encrypted by the server's key ring. So a backup
that was altered is refused, and so is one whose secrets this ring cannot decrypt.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.apps import AppConfig, apps
from django.conf import settings
from django.db import connection
from django.db.migrations import Migration

NAME = "manifest.json"
KEYS = "encryption_keys"
SECRETS = (KEYS, "secret_key")
DATABASES = {"sqlite": "parley.sqlite3", "postgresql": "parley.dump"}  # file by vendor

_PACKAGES = ("conversations", "llm", "project", "tools")
_FORMAT = 1
_LARGEST = 256 * 1024 * 1024  # bytes of a manifest: some million files
_MARGIN = 64 * 1024 * 1024  # bytes that stay free on the disk
_CHUNK = 1024 * 1024  # bytes
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NOT_ONE = "is not a backup with checksums"


class BadBackup(Exception):
    """A backup that cannot be restored here; the text says why."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    size: int  # bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    vendor: str  # of the database
    migrations: frozenset[str]  # "app.name" of each that was applied
    files: dict[str, FileEntry]  # by path, with "/", relative to the backup
    seal: str = ""

    @property
    def digest(self) -> str:
        """What the seal contains."""
        return hashlib.sha256(_dump(self._content()).encode()).hexdigest()

    def write(self, folder: Path, keys: Sequence[str]) -> None:
        seal = _ring(keys).encrypt(self.digest.encode()).decode()
        (folder / NAME).write_text(_dump({**self._content(), "seal": seal}))

    def check_seal(self, keys: Sequence[str]) -> None:
        """Raises BadBackup if it was altered, or sealed by another ring."""
        try:
            sealed = _ring(keys).decrypt(self.seal.encode()).decode()
        except (InvalidToken, ValueError) as exc:
            raise BadBackup(
                "the encryption keys are not those of the backup; put its"
                " encryption_keys into the data folder, or set ENCRYPTION_KEYS"
            ) from exc
        if sealed != self.digest:
            raise BadBackup("its manifest was altered")

    def _content(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "database": self.vendor,
            "migrations": sorted(self.migrations),
            "files": {name: asdict(file) for name, file in self.files.items()},
        }


def describe(folder: Path) -> Manifest:
    """The manifest of a folder whose files are complete."""
    paths = sorted(path for path in _walk(folder) if path.name != NAME)
    names = [path.relative_to(folder).as_posix() for path in paths]
    entries = [FileEntry(p.stat().st_size, _checksum(p)) for p in paths]
    return Manifest(
        connection.vendor,
        frozenset(_applied_migrations()),
        dict(zip(names, entries, strict=True)),
    )


def _applied_migrations() -> set[str]:
    """Without those of apps that are not installed any more, and of libraries' earlier
    versions; with those of a newer Parley, beside which this one may still run: a
    restore by this version must refuse its tables."""
    known = known_migrations()
    ours = {
        config.label
        for config in apps.get_app_configs()
        if config.name.partition(".")[0] in _PACKAGES
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT app, name FROM django_migrations")
        return {
            f"{app}.{name}"
            for app, name in cursor.fetchall()
            if app in ours or f"{app}.{name}" in known
        }


def known_migrations() -> set[str]:
    """Those of this version, as "app.name", with those that a squashed one replaces."""
    found = set()
    for config in apps.get_app_configs():
        for name, migration in _migrations_of(config):
            pairs = [(config.label, name), *migration.replaces]
            found |= {f"{app}.{each}" for app, each in pairs}
    return found


def _migrations_of(config: AppConfig) -> Iterator[tuple[str, type[Migration]]]:
    path = settings.MIGRATION_MODULES.get(config.label, f"{config.name}.migrations")
    if path is None or find_spec(path) is None:
        return
    # Django takes an app whose migrations are a module for one without migrations.
    for module in iter_modules(getattr(import_module(path), "__path__", ())):
        if not module.ispkg and module.name[0] not in "_~":
            yield module.name, import_module(f"{path}.{module.name}").Migration


def read_manifest(folder: Path) -> Manifest:
    """Raises BadBackup. The folder's files are not read yet."""
    path = folder / NAME
    try:
        if path.is_symlink() or path.stat().st_size > _LARGEST:
            raise BadBackup(f"{folder} {_NOT_ONE}")
        content = json.loads(path.read_bytes())
        number = content["format"]
        if isinstance(number, int) and number > _FORMAT:
            raise BadBackup("a newer version made it; install that one")
        if number != _FORMAT:
            raise BadBackup(f"{folder} {_NOT_ONE}")
        return Manifest(
            str(content["database"]),
            frozenset(map(str, content["migrations"])),
            {name: _entry(name, file) for name, file in content["files"].items()},
            str(content["seal"]),
        )
    except OSError as exc:
        raise BadBackup(f"{folder} {_NOT_ONE}: no {NAME} can be read there") from exc
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise BadBackup(f"{folder} {_NOT_ONE}: {NAME} is damaged") from exc


def check_files(folder: Path, manifest: Manifest) -> None:
    """Check names, kinds, sizes and checksums. Raises BadBackup."""
    there = {path.relative_to(folder).as_posix(): path for path in _walk(folder)}
    there.pop(NAME, None)
    if missing := sorted(manifest.files.keys() - there.keys()):
        raise BadBackup(f"{missing[0]!r} is missing")
    if more := sorted(there.keys() - manifest.files.keys()):
        raise BadBackup(f"{more[0]!r} is not in its manifest")
    for name, file in manifest.files.items():
        if there[name].stat().st_size != file.size:
            raise BadBackup(f"{name!r} has another size than when it was made")
    for name, file in manifest.files.items():
        if _checksum(there[name]) != file.sha256:
            raise BadBackup(f"{name!r} was altered: its checksum is another")


def check_room(target: Path, size: int) -> None:
    """Raises BadBackup."""
    free = shutil.disk_usage(target).free
    if size + _MARGIN > free:
        needed = (size + _MARGIN - free) // 1_000_000 + 1
        raise BadBackup(f"the disk of {target} needs {needed:,} MB more")


def copy_files(folder: Path, target: Path, files: dict[str, FileEntry]) -> None:
    """Copy them, and verify what was written: a file may have changed since the check.
    Raises BadBackup."""
    for name, file in files.items():
        copy = target / name
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(folder / name, copy, follow_symlinks=False)
        copy.chmod(0o600)
        if copy.is_symlink() or _checksum(copy) != file.sha256:
            raise BadBackup(f"{name!r} was altered while it was copied")


def refuse_unknown(migrations: Collection[str]) -> None:
    """Raises BadBackup if a newer version, or other apps, made these tables."""
    if unknown := sorted(set(migrations) - known_migrations()):
        raise BadBackup(
            f"it has the migration {unknown[0]}, which this version lacks; install the"
            " version that made it or a newer one, with its PARLEY_APPS"
        )


def _entry(name: str, file: dict[str, Any]) -> FileEntry:
    parts = name.split("/")
    is_ours = len(parts) == 1 and name in (*SECRETS, *DATABASES.values())
    is_media = len(parts) > 1 and parts[0] == "media"
    if not (is_ours or is_media) or {"", ".", ".."} & set(parts) or "\0" in name:
        raise BadBackup(f"{name!r} is no path of a backup")
    size, sha256 = file["size"], file["sha256"]
    if type(size) is not int or size < 0 or not _SHA256.fullmatch(sha256):
        raise ValueError(name)
    return FileEntry(size, sha256)


def _walk(folder: Path) -> Iterator[Path]:
    """Its files. Raises BadBackup at a link, a device or a pipe."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
            else:
                name = Path(entry.path).name
                raise BadBackup(f"{name!r} is a link or a device, not a file")


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _ring(keys: Sequence[str]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def _dump(content: dict[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))
