"""Command `worker`: run turns of the scaled delivery."""

from __future__ import annotations

import asyncio
import os
import signal
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connection

from project.environment.configuration_error import ConfigurationError
from project.environment.monitoring import require_guard
from project.management.commands.serve import parse_port
from project.server.event_loop import new_event_loop
from project.startup.data_folder import raise_open_file_limit
from project.startup.preparation import prepare


class Command(BaseCommand):
    help = "Run turns until SIGTERM or Ctrl-C, beside any number of `serve` processes."
    requires_system_checks = []  # the tests run them; here they would cost a second

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--metrics-port",
            type=parse_port,
            default=settings.MONITORING.port,
            help="port that serves /metrics, instead of METRICS_PORT",
        )

    def handle(self, *, metrics_port: int, **options: Any) -> None:
        if not settings.IS_SCALED:
            raise ConfigurationError(
                "DATABASE_URL",
                "workers need PostgreSQL; set DATABASE_URL=postgres://…, or"
                f" run `{settings.LOCATIONS.command} serve` alone, which runs turns"
                " itself.",
            )
        require_guard("--metrics-port", metrics_port, settings.MONITORING)
        os.umask(0o077)
        raise_open_file_limit()
        outcome = prepare()
        if outcome.has_new_admin:  # `serve` will not show the password again
            self.stdout.write(outcome.login)
        connection.close()  # the engine's threads have their own
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._work(metrics_port))

    async def _work(self, metrics_port: int) -> None:
        from conversations import engine
        from conversations.access import rate_limits
        from llm.http import client
        from project.monitoring import trace_export
        from project.monitoring.metrics_port import MetricsPort
        from project.server.watchdog import Watchdog
        from project.startup import memory
        from tools.mcp import client as mcp

        stopped, loop = asyncio.Event(), asyncio.get_running_loop()

        def stop(number: int) -> None:
            # A second signal ends the process; other workers resume its turns.
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(each, os._exit, 128 + number)
            stopped.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        trace_export.start()
        port = await MetricsPort.open(settings.MONITORING.host, metrics_port)
        await engine.start(is_worker=True)
        loop.run_in_executor(None, memory.freeze_startup_objects)
        watchdog = Watchdog(loop)
        self.stdout.write("The worker is running; Ctrl-C stops it.")
        self.stdout.flush()
        try:
            await stopped.wait()
            await engine.drain()
        finally:
            watchdog.close()
            await port.close()
            await rate_limits.aclose()
            await mcp.close_all()
            await client.aclose()
            await trace_export.close()
