"""Command `upload_files`: copy uploaded files of this machine into the bucket."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from conversations.turns.file_storage import FilesUnavailable, are_local
from project.backups import stored_files


class Command(BaseCommand):
    help = (
        "Copy the uploaded files of the data folder into the bucket that S3_BUCKET"
        " names, those that a row names. It may run beside the server and be repeated;"
        " it deletes nothing here."
    )
    requires_system_checks = []  # the test suite runs the checks

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--from",
            dest="folder",
            type=Path,
            default=settings.MEDIA_ROOT,
            help="another folder than `media` in the data folder",
        )

    def handle(self, *, folder: Path, **_: Any) -> None:
        if are_local():
            raise CommandError(
                "S3_BUCKET is not set: the files are in the data folder."
            )
        if not folder.is_dir():
            raise CommandError(f"There is no folder {folder}.")
        count = Counter[str]()
        try:
            for outcome in stored_files.upload_missing(folder):
                count[outcome] += 1
        except FilesUnavailable as exc:
            raise CommandError(
                f"The bucket cannot be used ({exc.reason}), after {count['copied']}"
                " files were copied. Run the command again."
            ) from exc
        self.stdout.write(
            f"Copied {count['copied']} files; {count['known']} were there already."
        )
        if count["unnamed"]:
            self.stdout.write(
                f"{count['unnamed']} files belong to nothing and were left out."
            )
