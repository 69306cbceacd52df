from __future__ import annotations

import os
import signal
from argparse import ArgumentParser, ArgumentTypeError
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection

from project.address import Address
from project.first_start import Outcome
from project.preparation import alone, prepare

if TYPE_CHECKING:
    from project.server import Server

QUESTION = "What is the weather in Paris, and what time is it there?"


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
        with alone(), address.listen() as listening:
            server = _server()
            outcome = prepare()
            connection.close()  # the server's threads have their own
            server.serve_at(listening, lambda: self._tell(address, outcome))

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


def _server() -> Server:
    # Not above: importing these reads the settings.
    import_module(settings.ROOT_URLCONF)  # or the first request would wait for it
    from project import lifespan
    from project.asgi import application
    from project.server import Hooks, Server

    return Server(
        application,
        Hooks(start=lifespan.start, drain=lifespan.drain, close=lifespan.close),
        grace=settings.DRAIN_GRACE,
        max_message=settings.MAX_WEBSOCKET_MESSAGE,
    )
