"""Entry point of the command `parley` and of manage.py: runs a management command."""

from __future__ import annotations

import os
import sys

SERVERS = ("serve", "worker", "runserver")  # they act for people, or by themselves


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    from project.environment.data_folder_policy import policy

    policy.apply_command(sys.argv[1:])
    from django.conf import settings
    from django.core.management import execute_from_command_line

    from project.environment.added_apps import check_added_apps

    check_added_apps(settings.ADDED_APPS, settings.INSTALLED_APPS, "PARLEY_APPS")
    command = next(iter(sys.argv[1:]), "")
    if command in SERVERS:
        execute_from_command_line(sys.argv)
        return
    from conversations.audit.act import Act, Channel, acting

    with acting(Act(channel=Channel.COMMAND, identity={"command": command[:50]})):
        execute_from_command_line(sys.argv)
