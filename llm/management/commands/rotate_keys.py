"""Command `rotate_keys`: encrypt all secrets with the newest key."""

from __future__ import annotations

from typing import Any

from cryptography.fernet import Fernet
from django.core.management.base import BaseCommand, CommandError, CommandParser

from llm.db.command_errors import report_database_errors
from llm.db.encrypted_field import Rotation, list_encrypted_fields, rotate


class Command(BaseCommand):
    help = (
        "Re-encrypt every stored secret with the first key of ENCRYPTION_KEYS. The"
        " command may run beside a server, and can be repeated after an interruption."
        " Afterwards the older keys can be removed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--batch-size", type=int, default=500, metavar="ROWS")
        parser.add_argument(
            "--print-new-key",
            action="store_true",
            help="only print a new key, to be put first in ENCRYPTION_KEYS",
        )

    def handle(self, *, batch_size: int, print_new_key: bool, **options: Any) -> None:
        if print_new_key:
            self.stdout.write(Fernet.generate_key().decode())
            return
        if batch_size < 1:
            raise CommandError("--batch-size must be at least 1.")
        unfinished = False
        for column in list_encrypted_fields():
            with report_database_errors():
                done = rotate(column, batch_size=batch_size)
            self.stdout.write(_line(done))
            unfinished |= bool(done.unreadable or done.changed_meanwhile)
        if unfinished:
            raise CommandError(
                "Not all secrets are encrypted with the newest key. Keep the older"
                " keys, run this command again, and re-enter secrets that cannot be"
                " read."
            )


def _line(done: Rotation) -> str:
    parts = [
        f"{done.rotated} re-encrypted",
        f"{done.already_newest} already with the newest key",
    ]
    if done.changed_meanwhile:
        parts.append(f"{done.changed_meanwhile} changed meanwhile")
    if done.unreadable:
        rows = ", ".join(map(str, done.unreadable))
        parts.append(f"{len(done.unreadable)} unreadable (rows {rows})")
    return f"{done.column}: {', '.join(parts)}"
