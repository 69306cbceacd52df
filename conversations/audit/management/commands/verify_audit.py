"""Command `verify_audit`: find removed or altered rows of the audit log."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection

from conversations.audit.chain import Verification, find_head
from conversations.audit.triggers import count_missing

_HEAD = re.compile(r"(\d+):([0-9a-f]{64})")
MAX_SHOWN = 50  # findings


class Command(BaseCommand):
    help = (
        "Verify the audit log: its hash chain, its texts and its checkpoints. Exits"
        " with 1 if a row was removed or altered."
    )
    requires_system_checks = []  # the test suite runs the checks

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--head",
            action="append",
            default=[],
            metavar="POSITION:HASH",
            help="a head that the server's log has recorded; may be repeated. Only a"
            " recorded head shows that the newest events were removed.",
        )

    def handle(self, **options: Any) -> None:
        found = Verification()
        found.run(_read_heads(options["head"]))
        if missing := count_missing(connection):
            found.findings.append(
                f"{missing} triggers are missing; `manage.py migrate` installs them."
            )
        for line in found.findings[:MAX_SHOWN]:
            self.stderr.write(line)
        position, head = find_head()
        self.stdout.write(
            f"{found.linked} events verified, {found.erased} texts erased,"
            f" {found.unlinked} not linked yet; head {position}:{head}"
        )
        if found.findings:
            raise CommandError(f"{len(found.findings)} findings.", returncode=1)


def _read_heads(texts: list[str]) -> dict[int, str]:
    heads = {}
    for text in texts:
        if (match := _HEAD.fullmatch(text.strip())) is None:
            raise CommandError(f"{text!r} is not POSITION:HASH.", returncode=2)
        heads[int(match[1])] = match[2]
    return heads
