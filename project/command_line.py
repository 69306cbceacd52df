"""Entry point of the command `parley` and of manage.py: runs a management command."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    from django.conf import settings
    from django.core.management import execute_from_command_line

    from project.environment.added_apps import check_added_apps

    check_added_apps(settings.ADDED_APPS, settings.INSTALLED_APPS, "PARLEY_APPS")
    execute_from_command_line(sys.argv)
