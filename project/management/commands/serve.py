from __future__ import annotations

import asyncio
import os
import signal
import socket
from argparse import ArgumentParser, ArgumentTypeError
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from project.address import Address
from project.environment import ConfigurationError
from project.files import InUse, lock_folder
from project.first_start import Outcome, first_start

if TYPE_CHECKING:
    from project.server import Server

QUESTION = "What is the weather in Paris, and what time is it there?"
LONGEST_ESCAPE = 6  # bytes: JSON may write a byte of text as \u00xx


class Command(BaseCommand):
    help = "Run Parley: prepare the data folder, then serve until SIGTERM or Ctrl-C."
    requires_system_checks = []  # the tests run them; here they would cost a second

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default=settings.HOST, help="instead of HOST")
        parser.add_argument(
            "--port", type=_port, default=settings.PORT, help="instead of PORT"
        )

    def handle(self, *, host: str, port: int, **options: Any) -> None:
        os.umask(0o077)  # whatever is written from here on is ours alone
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback while preparing
        address = Address(host, port)
        _settle(address)
        # What may fail comes before the first start, which shows a password once.
        with _lock(), address.listen() as listening:
            server = _server(listening)
            _connect()
            _migrate()
            outcome = first_start()
            connection.close()  # the server's threads have their own
            server.serve(lambda: self._tell(address, outcome))

    def _tell(self, address: Address, outcome: Outcome) -> None:
        next_thing = f"add a provider, its key and a model at {address.url}/admin/"
        if outcome.has_model:
            next_thing = f"open it, sign in and ask: {QUESTION}"
        self.stdout.write(f"Parley is running at {address.url}")
        self.stdout.write(outcome.login)
        self.stdout.write(f"Next: {next_thing}")
        self.stdout.flush()


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ArgumentTypeError(f"{text!r} is no port; use 1 to 65535.")
    return int(text)


def _settle(address: Address) -> None:
    """Make --host and --port as good as HOST and PORT."""
    settings.SELF_URL = address.url
    if address.host != settings.HOST:
        settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, *address.names()]


def _lock() -> IO[str]:
    try:
        return lock_folder(settings.DATA)
    except InUse as exc:
        raise ConfigurationError(
            "PARLEY_DATA", f"{exc}; stop that or name another folder."
        ) from exc


def _connect() -> None:
    try:
        connection.ensure_connection()
    except DatabaseError as exc:
        path = settings.DATABASES["default"]["NAME"]
        raise ConfigurationError(
            "DATABASE_URL", f"cannot use {path} ({exc}); name another file."
        ) from exc


def _migrate() -> None:
    """`migrate`, which takes a second, only where there is something to do."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", verbosity=0, interactive=False)


def _server(listening: socket.socket) -> Server:
    # Not above: importing these makes the event loop and reads the settings.
    import_module(settings.ROOT_URLCONF)  # or the first request would wait for it
    from conversations import engine
    from llm import client, prices
    from project.asgi import application
    from project.server import Hooks, Server, log_access

    async def start() -> None:
        await engine.start()
        # The price list takes half a second to read; no answer shall wait for it.
        asyncio.get_running_loop().run_in_executor(None, prices.warm)

    return Server(
        application,
        listening,
        Hooks(start=start, drain=engine.drain, close=client.aclose),
        grace=settings.DRAIN_GRACE,
        action_logger=log_access if settings.ACCESS_LOG else None,
        # A message too large is for the application to refuse, in words.
        websocket_max_message_size=LONGEST_ESCAPE * settings.MAX_INPUT_SIZE,
        websocket_max_frame_size=LONGEST_ESCAPE * settings.MAX_INPUT_SIZE,
    )
