"""Command `erase_user`: erase a person and everything that names the person."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser

from conversations.access.account_deletion import LastSuperuser
from conversations.engine.maintenance.erasure import compact, erase_user
from conversations.models import UnderLegalHold


class Command(BaseCommand):
    help = (
        "Erase a user: account, conversations, files, memories, settings, history, and"
        " the texts of the audit log about the user. It cannot be undone. It may run"
        " beside the server, and can be repeated after an interruption."
    )
    requires_system_checks = []  # the test suite runs the checks

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--reason", required=True, help="for the audit log")
        parser.add_argument(
            "--no-compact",
            action="store_true",
            help="leave deleted bytes in the database's file until it is rewritten",
        )

    def handle(
        self, *, username: str, reason: str, no_compact: bool, **options: Any
    ) -> None:
        users: Any = get_user_model()._default_manager
        user = users.filter(**{get_user_model().USERNAME_FIELD: username}).first()
        if user is None:
            raise CommandError("There is no such user.")
        try:
            erased: Counter[str] = sum(erase_user(user, reason=reason), Counter())
        except UnderLegalHold as exc:
            raise CommandError("A legal hold stands; nothing more was erased.") from exc
        except LastSuperuser as exc:
            raise CommandError(str(exc.message)) from exc
        for name, count in sorted(erased.items()):
            self.stdout.write(f"erased {name}: {count}")
        if not no_compact and (problem := compact()):
            self.stderr.write(f"The database was not compacted: {problem}.")
