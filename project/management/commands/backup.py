"""Command `backup`: copy the database, files and secrets, and note when."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from conversations.models import Backup
from conversations.turns.file_storage import are_local
from llm.db.command_errors import report_database_errors
from project.backups import postgresql, stored_files
from project.backups.leftovers import PARTIAL, delete_leftovers, protect_folder
from project.backups.manifest import DATABASES, SECRETS, BadBackup, describe
from project.startup.preparation import has_pending_migrations


class Command(BaseCommand):
    help = (
        "Copy the database, uploaded files and the secrets of the data folder into a"
        " new folder inside FOLDER. It may run beside the server."
    )
    requires_system_checks = []  # the test suite runs the checks

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", nargs="?", type=Path)
        parser.add_argument(
            "--without-secrets",
            action="store_true",
            help="leave out encryption_keys and secret_key, to keep them elsewhere",
        )
        parser.add_argument(
            "--noted",
            action="store_true",
            help="copy nothing; note that another program has made a backup now",
        )

    def handle(
        self, *, folder: Path | None, without_secrets: bool, noted: bool, **_: Any
    ) -> None:
        if noted == (folder is not None):
            raise CommandError("Name a folder, or give --noted.")
        with report_database_errors():
            if has_pending_migrations():
                raise CommandError("The database is not ready: start the server once.")
            made = "" if folder is None else str(_back_up(folder, without_secrets))
            Backup.objects.create(folder=made[:500])
        self.stdout.write(f"Backed up to {made}" if made else "Noted.")


def _back_up(folder: Path, without_secrets: bool) -> Path:
    """Returns the new folder. What is there under its name is complete."""
    folder = folder.absolute()
    if folder.is_relative_to(settings.MEDIA_ROOT):
        raise CommandError("The folder is inside that of the uploaded files.")
    try:
        delete_leftovers(folder, f"parley-*{PARTIAL}")
        partial = _make_partial(folder)
        try:
            with protect_folder(partial):
                _copy_database(partial)
                _copy_files(partial, () if without_secrets else SECRETS)
                describe(partial).write(partial, settings.ENCRYPTION_KEYS)
                return partial.rename(partial.with_suffix(""))
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except (OSError, shutil.Error, sqlite3.Error, BadBackup) as exc:
        raise CommandError(f"The backup failed: {exc}") from exc


def _make_partial(folder: Path) -> Path:
    """Make a folder named after this second; it has a number if the name is taken."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"parley-{timezone.now():%Y%m%d-%H%M%S}"
    number = 1
    while True:
        done = folder / (name if number == 1 else f"{name}-{number}")
        partial = done.with_name(done.name + PARTIAL)
        with suppress(FileExistsError):
            partial.mkdir(mode=0o700)
            if not done.exists():
                return partial
            partial.rmdir()
        number += 1


def _copy_database(folder: Path) -> None:
    if connection.vendor == "sqlite":
        target = sqlite3.connect(folder / DATABASES["sqlite"])
        source = sqlite3.connect(connection.settings_dict["NAME"])
        with closing(source), closing(target):
            source.backup(target)
        return
    postgresql.dump_to(folder / DATABASES["postgresql"])


def _copy_files(folder: Path, secrets: tuple[str, ...]) -> None:
    """After the database: no file is missing that a copied row names."""
    if not are_local():
        stored_files.download(stored_files.list_names(), folder / "media")
    elif settings.MEDIA_ROOT.is_dir():
        shutil.copytree(
            settings.MEDIA_ROOT,
            folder / "media",
            ignore=_omit_restored,
            copy_function=_copy_if_there,
        )
    for name in secrets:
        if (settings.DATA / name).is_file():  # not those of the environment
            shutil.copy2(settings.DATA / name, folder / name)


def _omit_restored(folder: str, names: list[str]) -> list[str]:
    is_root = Path(folder) == settings.MEDIA_ROOT
    return [name for name in names if is_root and stored_files.is_of_restore(name)]


def _copy_if_there(source: str, target: str) -> None:
    """A server deletes files meanwhile; models are told that one is missing."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)
