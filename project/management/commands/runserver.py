"""Command `runserver`: Daphne with the engine, for development."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from daphne.management.commands import runserver
from django.core.management.base import CommandError
from django.db import connection

from project.server.daphne_server import Server
from project.startup.data_folder import InUse
from project.startup.preparation import lock_data_folder, prepare


class Command(runserver.Command):
    help = "Serve with Daphne and restart at changes of the code. See also `serve`."
    server_cls = Server

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(use_static_handler=False)  # WhiteNoise serves static files

    def inner_run(self, *args: Any, **options: Any) -> None:
        with lock_data_folder():
            outcome = prepare()
        self.stdout.write(outcome.login)
        connection.close()  # the server's threads have their own
        try:
            super().inner_run(*args, **options)
        except InUse as exc:
            raise CommandError(f"{exc}.") from exc
