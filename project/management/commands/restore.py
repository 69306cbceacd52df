"""Command `restore`: put a backup back into an empty server, or in place of one."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from itertools import compress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.storage import default_storage
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from conversations.turns.file_storage import are_local
from llm.db.command_errors import report_database_errors
from project.backups import postgresql, stored_files
from project.backups.interrupted_restore import describe_unfinished, marking
from project.backups.leftovers import delete_leftovers, protect_folder
from project.backups.manifest import (
    DATABASES,
    KEYS,
    SECRETS,
    BadBackup,
    Manifest,
    check_files,
    check_room,
    copy_files,
    read_manifest,
    refuse_unknown,
)
from project.backups.reversible_moves import Moves, moving
from project.environment.configuration_error import ConfigurationError
from project.startup.preparation import lock_data_folder

_MAIN = "from project.command_line import main; main()"


class Command(BaseCommand):
    help = (
        "Restore what the command `backup` wrote into FOLDER: database, uploaded files"
        " and secrets. The server must be stopped."
    )
    requires_system_checks = []  # the test suite runs the checks

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path)
        parser.add_argument(
            "--replace",
            action="store_true",
            help="in place of what is there: files move to a folder replaced-… in the"
            " data folder or the volume of uploaded files, and PostgreSQL's tables are"
            " dropped",
        )

    def handle(self, *, folder: Path, replace: bool, **_: Any) -> None:
        with _report_refusals(), report_database_errors(), lock_data_folder():
            manifest = _check(folder)
            _refuse_what_is_there(replace)
            left = _restore(folder, manifest)
            _migrate()
        self.stdout.write(f"Restored {folder}")
        if left:
            self.stderr.write(
                f"The bucket still has {left} files of the server before, which could"
                " not be deleted."
            )
        if settings.REDIS_URL:
            self.stdout.write("Empty Redis (FLUSHDB) before you start the processes.")


@contextmanager
def _report_refusals() -> Iterator[None]:
    try:
        yield
    except BadBackup as exc:
        raise CommandError(f"Not restored: {exc}.") from exc
    except ConfigurationError as exc:  # of the lock
        raise CommandError(str(exc)) from exc
    except (OSError, shutil.Error, sqlite3.Error) as exc:
        raise CommandError(f"The restore failed: {exc}") from exc


def _check(folder: Path) -> Manifest:
    """Everything that can be known before something is changed. Raises BadBackup."""
    manifest = read_manifest(folder)
    if connection.vendor != manifest.vendor:
        raise BadBackup(
            f"it holds a database of {manifest.vendor}, and DATABASE_URL names one of"
            f" {connection.vendor}"
        )
    check_files(folder, manifest)
    if DATABASES[manifest.vendor] not in manifest.files:
        raise BadBackup("it holds no database")
    manifest.check_seal(_find_keys(folder, manifest))
    refuse_unknown(manifest.migrations)
    for target, names in _split(manifest).items():
        needed = sum(manifest.files[name].size for name in names)
        if target == settings.DATA and not are_local():
            needed += stored_files.total_size()  # they are copied there first
        check_room(target, needed)
    return manifest


def _find_keys(folder: Path, manifest: Manifest) -> list[str]:
    """The key ring that the server will have after the restore."""
    if settings.KEYS_ARE_STORED and KEYS in manifest.files:
        return (folder / KEYS).read_text().split()
    return list(settings.ENCRYPTION_KEYS)


def _refuse_what_is_there(replace: bool) -> None:
    is_postgresql = connection.vendor == "postgresql"
    has_database = postgresql.has_tables() if is_postgresql else _has_sqlite()
    has_files = next(_names_of_files(), None) is not None
    if not replace and (unfinished := describe_unfinished()):
        raise CommandError(f"Not restored: {unfinished}")
    if not replace and (has_database or has_files):
        what = "a database" if has_database else "uploaded files"
        raise CommandError(
            f"Not restored: there is {what} already; name another data folder and"
            " database, or give --replace."
        )
    if is_postgresql and (others := postgresql.count_others()):
        raise CommandError(
            f"Not restored: {others} connections use the database; stop all web"
            " processes and workers."
        )


def _names_of_files() -> Iterator[str]:
    if are_local() and not settings.MEDIA_ROOT.is_dir():
        return iter(())
    return stored_files.list_names()


def _has_sqlite() -> bool:
    path = _sqlite_path()
    return path.exists() and path.stat().st_size > 0


def _sqlite_path() -> Path:
    return Path(connection.settings_dict["NAME"])


def _split(manifest: Manifest) -> dict[Path, list[str]]:
    """The files to restore, by the folder where they are staged. It is on the disk
    where they go, so that after the copy and its check they are only renamed."""
    split: dict[Path, list[str]] = {settings.DATA: [], _files_folder(): []}
    for name in manifest.files:
        if name in _stored_secrets() or name == DATABASES["sqlite"]:
            split[settings.DATA].append(name)
        elif name not in SECRETS:
            split[_files_folder()].append(name)
    return split


def _stored_secrets() -> Sequence[str]:
    """Those that the server reads from its data folder, as no variable is set."""
    are_stored = (settings.KEYS_ARE_STORED, settings.SECRET_KEY_IS_STORED)
    return [*compress(SECRETS, are_stored)]


def _files_folder() -> Path:
    """The folder of uploaded files if it is a volume, else the data folder."""
    root = settings.MEDIA_ROOT
    is_volume = are_local() and root.is_dir() and _is_elsewhere(root)
    return root if is_volume else settings.DATA


def _is_elsewhere(folder: Path) -> bool:
    return folder.stat().st_dev != settings.DATA.stat().st_dev


def _restore(folder: Path, manifest: Manifest) -> int:
    """The number of files of the server before that a bucket did not delete.

    What may fail for a time comes before anything is replaced, so that the command may
    be repeated: the bucket has the files of both until the database is exchanged.
    """
    connection.close()
    with ExitStack() as stack:
        staged = {
            target: stack.enter_context(_staging(target)) for target in _split(manifest)
        }
        for target, names in _split(manifest).items():
            files = {name: manifest.files[name] for name in names}
            copy_files(folder, staged[target], files)
        if manifest.vendor == "sqlite":
            _check_sqlite(staged[settings.DATA] / DATABASES["sqlite"])
        prefix = f"{stored_files.REPLACED}{timezone.now():%Y%m%d}-"
        former = Path(tempfile.mkdtemp(prefix=prefix, dir=settings.DATA))
        superseded: Sequence[str] = ()
        if not are_local():
            media = staged[_files_folder()] / "media"
            superseded = _fill_bucket(media, former / "media")
        with marking():
            _replace(staged, former, manifest)
        with suppress(OSError):  # it is not empty
            former.rmdir()
        return _delete(superseded)


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    delete_leftovers(folder, f"{stored_files.RESTORING}*")
    prefix = stored_files.RESTORING
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder) as name:
        staged = Path(name)
        with protect_folder(staged):
            yield staged


def _replace(staged: Mapping[Path, Path], former: Path, manifest: Manifest) -> None:
    if manifest.vendor == "sqlite":
        _exchange(staged, former)
        return
    if postgresql.are_set_aside():  # by a restore that was killed
        postgresql.put_back()
    has_former = postgresql.has_tables()
    with postgresql.setting_tables_aside() if has_former else nullcontext():
        postgresql.restore_from(staged[_files_folder()] / DATABASES["postgresql"])
        _exchange(staged, former)


def _check_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        (result,) = database.execute("PRAGMA quick_check").fetchone()
    if result != "ok":
        raise BadBackup(f"its database is damaged: {result}")


def _exchange(staged: Mapping[Path, Path], former: Path) -> None:
    """Move what is there to `former`, and what is staged to where that was, the
    database and the secrets last; or change nothing and raise OSError. A killed process
    leaves both in part, and the mark of `marking`."""
    here = staged[settings.DATA]
    with moving() as moves:
        if are_local():
            folder = _files_folder()
            _exchange_files(staged[folder], folder / former.name, moves)
        target = _sqlite_path()
        sqlite = here / DATABASES["sqlite"]
        if sqlite.exists():
            for suffix in ("-wal", "-shm"):  # of the database that is replaced
                moves.set_aside(target.with_name(target.name + suffix), former)
            moves.exchange(sqlite, target, former)
        for name in SECRETS:
            moves.exchange(here / name, settings.DATA / name, former)


def _exchange_files(staged: Path, former: Path, moves: Moves) -> None:
    """One by one: the folder of uploaded files may be a volume."""
    for path in [*settings.MEDIA_ROOT.glob("*")]:
        if not stored_files.is_of_restore(path.name):
            moves.set_aside(path, former / "media")
    for path in (staged / "media").glob("*"):
        moves.exchange(path, settings.MEDIA_ROOT / path.name, former / "media")


def _fill_bucket(staged: Path, former: Path) -> Sequence[str]:
    """Copy what is there to `former`, and what is staged into the bucket. Returns the
    names of the other files there."""
    names = list(stored_files.list_names())
    stored_files.download(names, former)
    brought = set(stored_files.upload(staged))
    return [name for name in names if name not in brought]


def _delete(names: Sequence[str]) -> int:
    """The number of files that could not be deleted."""
    left = 0
    for name in names:
        try:
            default_storage.delete(name)
        except OSError:
            left += 1
    return left


def _migrate() -> None:
    """In a new process, which has the key ring and the settings that were restored."""
    done = subprocess.run(
        [sys.executable, "-c", _MAIN, "migrate", "--verbosity=0"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    if done.returncode:
        raise CommandError("Everything was restored, but not migrated: see above.")
