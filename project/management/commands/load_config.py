"""Command `load_config`: apply a TOML file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.config_file import ConfigError, load
from project.environment.configuration_error import ConfigurationError
from project.startup.preparation import has_pending_migrations, prepare_database


class Command(BaseCommand):
    help = (
        "Create and update providers, keys, models and tools from a TOML file (see"
        " docs/configuration.md). Loading the file again changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE.toml")
        parser.add_argument(
            "--allow-literal-keys",
            action="store_true",
            help="accept keys that are in the file itself",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="print the changes without making them",
        )

    def handle(
        self, *, file: Path, allow_literal_keys: bool, dry_run: bool, **options: Any
    ) -> None:
        document = _read(file)
        _prepare(dry_run)
        try:
            report = load(
                document,
                os.environ,
                allow_literal_keys=allow_literal_keys,
                dry_run=dry_run,
            )
        except ConfigError as exc:
            raise CommandError(f"{exc}\nNothing was changed.") from exc
        for line in [*report.notes, *report.changes]:
            self.stdout.write(line)
        if not report.changes:
            self.stdout.write("Nothing to do.")
        elif dry_run:
            self.stdout.write("Nothing was changed: --dry-run.")


def _prepare(dry_run: bool) -> None:
    try:
        if not dry_run:
            prepare_database()
        elif has_pending_migrations():
            raise CommandError(
                "The database is not ready: start the server once, or load the file"
                " without --dry-run."
            )
    except ConfigurationError as exc:
        raise CommandError(str(exc)) from exc


def _read(file: Path) -> dict[str, Any]:
    try:
        # Editors of Windows begin files with a mark of their encoding.
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as exc:
        raise CommandError(f"{file}: {exc.strerror}.") from exc
    except UnicodeDecodeError as exc:
        raise CommandError(f"{file}: the file is not UTF-8.") from exc
    except tomllib.TOMLDecodeError as exc:
        raise CommandError(f"{file}: {exc}.") from exc
