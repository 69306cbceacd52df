"""Command `runserver`: Daphne with the engine, for development."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from daphne.management.commands import runserver
from django.core.management.base import CommandError
from django.db import connection

from project.server.daphne_server import EngineUnderDaphne
from project.startup.data_folder import InUse
from project.startup.preparation import lock_data_folder, prepare


class Command(runserver.Command):
    help = "Serve with Daphne and restart when the code changes. See also `serve`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.set_defaults(use_static_handler=False)  # WhiteNoise serves static files

    def inner_run(self, *args: Any, **options: Any) -> None:
        with lock_data_folder():
            outcome = prepare()
        self.stdout.write(outcome.login)
        connection.close()  # the server's threads have their own
        engine = EngineUnderDaphne()
        engine.attach()
        super().inner_run(*args, **options)
        if isinstance(engine.failure, InUse):
            raise CommandError(f"{engine.failure}.") from engine.failure
        if engine.failure is not None:
            raise engine.failure
