"""Command `clean_up`: erase rows whose retention has ended."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand

from conversations.engine.maintenance.retention import clean_up
from llm.db.command_errors import report_database_errors


class Command(BaseCommand):
    help = (
        "Erase rows whose retention has ended (see RETENTION_DAYS and"
        " DELETED_RETENTION_DAYS). The server does this once a day. The command may run"
        " beside the server, and can be repeated after an interruption."
    )
    requires_system_checks = []  # the test suite runs the checks

    def handle(self, **options: Any) -> None:
        with report_database_errors():
            erased: Counter[str] = sum(clean_up(), Counter())
        if not erased:
            self.stdout.write("There was nothing to erase.")
        for name, count in sorted(erased.items()):
            self.stdout.write(f"erased {name}: {count}")
