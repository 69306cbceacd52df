"""Command `serve`: prepare the data folder and serve with uvicorn."""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.core.signals import setting_changed
from django.db import connection

from project.environment.address import Address
from project.environment.configuration_error import ConfigurationError
from project.environment.variables import MAX_PORT, MAX_PROCESSES
from project.startup.first_start import Outcome
from project.startup.preparation import lock_data_folder, prepare

if TYPE_CHECKING:
    from project.server.gateway_processes.processes import GatewayProcesses
    from project.server.uvicorn_server import Server

_SERVER = ("project.server.lifespan", "project.server.uvicorn_server")
QUESTION = "What is the weather in Paris, and what time is it there?"


class Command(BaseCommand):
    help = "Run Parley: prepare the data folder, then serve until SIGTERM or Ctrl-C."
    requires_system_checks = []  # the tests run them; here they would cost a second

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--host",
            default=settings.HOST,
            help="address to listen on, instead of HOST",
        )
        parser.add_argument(
            "--port",
            type=parse_port,
            default=settings.PORT,
            help="port to listen on, instead of PORT",
        )
        parser.add_argument(
            "--workers",
            type=parse_count,
            default=settings.GATEWAY_WORKERS,
            metavar="N",
            help="gateway processes beside this one, instead of GATEWAY_WORKERS",
        )
        parser.add_argument(
            "--gateway-port",
            type=parse_port,
            default=settings.GATEWAY_PORT,
            help="port that these serve, instead of GATEWAY_PORT",
        )

    def handle(
        self, *, host: str, port: int, workers: int, gateway_port: int, **options: Any
    ) -> None:
        if workers and settings.IS_SCALED:
            raise ConfigurationError(
                "GATEWAY_WORKERS",
                "this is for SQLite; with PostgreSQL start `serve` several times.",
            )
        os.umask(0o077)  # new files are private to this user
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of Ctrl-C
        address = Address(host, port)
        apply_address(address)
        # Listen before the first start: if that failed after it, the new password,
        # which is shown only once, would be lost.
        with (
            lock_data_folder(),
            address.listen() as listening,
            _gateway_processes(workers, gateway_port or port + 1, address) as processes,
        ):
            outcome = prepare(_import_server)
            connection.close()  # the server's threads have their own
            server = _create_server(processes)
            server.serve_at(
                listening, lambda: self._print_address(address, outcome, processes)
            )

    def _print_address(
        self, address: Address, outcome: Outcome, processes: GatewayProcesses | None
    ) -> None:
        next_step = f"add a provider, its key and a model at {address.url}/admin/"
        if outcome.has_model:
            next_step = f"open it, sign in and ask: {QUESTION}"
        self.stdout.write(f"Parley is running at {address.url}")
        if processes is not None:
            self.stdout.write(processes.description)
        self.stdout.write(outcome.login)
        self.stdout.write(f"Next: {next_step}")
        self.stdout.flush()


def parse_port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MAX_PORT:
        raise ArgumentTypeError(f"{text!r} is not a port; use 1 to {MAX_PORT}.")
    return int(text)


def parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_PROCESSES:
        raise ArgumentTypeError(f"{text!r} is not a number from 0 to {MAX_PROCESSES}.")
    return int(text)


@contextmanager
def _gateway_processes(
    count: int, port: int, address: Address
) -> Iterator[GatewayProcesses | None]:
    """The processes, to be started with the server; None if there are none."""
    if not count:
        yield None
        return
    from project.server.gateway_processes.processes import GatewayProcesses

    if port > MAX_PORT:
        raise ConfigurationError(
            "GATEWAY_PORT",
            f"there is no port after {MAX_PORT}; set one or --gateway-port.",
        )
    own = Address(address.host, port)
    with ExitStack() as sockets:
        listening = own.listen_for_all(count, "GATEWAY_PORT")
        for each in listening:
            sockets.enter_context(each)
        yield GatewayProcesses(listening, own, address, settings.DRAIN_GRACE)


def apply_address(address: Address) -> None:
    """Apply --host and --port to the settings that follow from HOST and PORT."""
    settings.SELF_URL = address.url
    setting_changed.send(None, setting="SELF_URL", value=address.url, enter=True)
    if address.host != settings.HOST:
        settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, *address.names()]


def _import_server() -> None:
    """Import the modules that requests need; the first one would wait for them."""
    for name in (settings.ROOT_URLCONF, "project.asgi", *_SERVER):
        import_module(name)


def _create_server(processes: GatewayProcesses | None) -> Server:
    # Imported here, because these modules read the settings.
    from project.asgi import application
    from project.server import lifespan
    from project.server.uvicorn_server import Hooks, Server

    hooks = Hooks(start=lifespan.start, drain=lifespan.drain, close=lifespan.close)
    if processes is not None:
        hooks = processes.add_to(hooks)
    return Server(
        application,
        hooks,
        grace=settings.DRAIN_GRACE,
        max_message=settings.MAX_WEBSOCKET_MESSAGE,
    )
