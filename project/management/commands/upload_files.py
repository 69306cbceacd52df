"""Command `upload_files`: copy uploaded files of this machine into the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from conversations.turns.file_storage import FilesUnavailable, are_local
from project.backups import stored_files


class Command(BaseCommand):
    help = (
        "Copy the uploaded files of the data folder into the bucket that S3_BUCKET"
        " names. It may run beside the server and be repeated; it deletes nothing."
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
        copied = known = 0
        try:
            for _name, is_new in stored_files.upload(folder):
                copied, known = copied + is_new, known + (not is_new)
        except FilesUnavailable as exc:
            raise CommandError(
                f"The bucket cannot be used ({exc.reason}), after {copied} files were"
                " copied. Run the command again."
            ) from exc
        self.stdout.write(f"Copied {copied} files; {known} were there already.")
