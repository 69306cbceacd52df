from __future__ import annotations

from typing import Any

import tomli_w
from django.core.management.base import BaseCommand, CommandError

from project.config_file import dump
from project.startup.preparation import has_pending_migrations

_HEAD = """\
# Parley's configuration, for manage.py load_config. Fields at their default are left
# out. Keys are not in here: set the variables that `secret` names, or rename them.

"""


class Command(BaseCommand):
    help = "Write providers, models and tools as TOML, without any key."

    def handle(self, **options: Any) -> None:
        if has_pending_migrations():
            raise CommandError("The database is not ready: start the server once.")
        self.stdout.write(_HEAD + tomli_w.dumps(dump()), ending="")
