from __future__ import annotations

from collections import Counter
from typing import Any

from django.core.management.base import BaseCommand

from conversations.engine.maintenance.retention import clean_up


class Command(BaseCommand):
    help = (
        "Erase what is past its time (see RETENTION_DAYS and DELETED_RETENTION_DAYS)."
        " The server does this once a day by itself. Safe beside it, and to be started"
        " again when broken off."
    )
    requires_system_checks = []  # the test suite runs the checks

    def handle(self, **options: Any) -> None:
        erased: Counter[str] = sum(clean_up(), Counter())
        if not erased:
            self.stdout.write("There was nothing to erase.")
        for name, count in sorted(erased.items()):
            self.stdout.write(f"erased {name}: {count}")
