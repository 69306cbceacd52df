"""Command `dump_config`: write the configuration as TOML."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from project.config_file import dump_text
from project.startup.preparation import has_pending_migrations


class Command(BaseCommand):
    help = "Write providers, models and tools as TOML, without any key."

    def handle(self, **options: Any) -> None:
        if has_pending_migrations():
            raise CommandError("The database is not ready: start the server once.")
        self.stdout.write(dump_text(), ending="")
