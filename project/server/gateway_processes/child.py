"""A gateway process; `processes` starts it with open descriptors as arguments.

It has no schedules, runs no turns and no migrations. It ends when its channel does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from ipaddress import ip_address

# The application sets Django up, which the other imports need.
from project.asgi import application  # isort: skip

from django.conf import settings

from conversations.access import rate_limits
from conversations.engine import notifications
from conversations.gateway.loop_resources import resources
from llm.telemetry.registry import REGISTRY
from project.environment.address import Address
from project.management.commands.serve import apply_address
from project.monitoring import exposition
from project.monitoring.exposition import Family
from project.server import lifespan
from project.server.gateway_processes.channel import Channel
from project.server.gateway_processes.shared_limits import (
    EngineBuckets,
    SharedConnections,
)
from project.server.gateway_processes.stateless_port import StatelessPort
from project.server.uvicorn_server import Hooks, Server


class GatewayProcess:
    def __init__(self, connection: socket.socket, address: str) -> None:
        self._connection = connection
        self._address = address

    def serve(self, listening: socket.socket) -> None:
        """Until a signal arrives or the channel ends."""
        server = Server(
            StatelessPort(application, self._address),
            Hooks(start=self._start, drain=lifespan.drain, close=lifespan.close),
            grace=settings.DRAIN_GRACE,
            max_message=settings.MAX_WEBSOCKET_MESSAGE,
            # Ctrl-C and systemd signal it, and so does the process with the engine,
            # which kills it after the grace.
            ends_at_second_signal=False,
        )
        server.serve_at(listening, lambda: None)

    async def _start(self) -> None:
        channel = await Channel.open(
            self._connection,
            {"changed": notifications.dispatch, "metrics": collect_metrics},
        )
        self._receiving = asyncio.create_task(channel.run())
        self._receiving.add_done_callback(_end)
        rate_limits.share(EngineBuckets(channel))
        await lifespan.start(is_gateway=True)
        shared = resources()
        shared.engine_address = self._address
        if settings.TOKEN_CONNECTIONS or settings.MAX_CONNECTIONS:
            shared.share_connection = SharedConnections(channel).open


def _end(receiving: asyncio.Task[None]) -> None:
    """Drain if the process with the engine has ended."""
    if not receiving.cancelled():  # as it is at the end of this process
        os.kill(os.getpid(), signal.SIGTERM)


def collect_metrics() -> list[Family]:
    """Of this process: the figures of the database are the engine's to report."""
    return [
        (
            family.name,
            family.documentation,
            family.type,
            [(each.name, each.labels, each.value) for each in family.samples],
        )
        for family in REGISTRY.collect()
    ]


def main(arguments: list[str]) -> None:
    *descriptors, host, port = arguments
    sockets = [socket.socket(fileno=int(each)) for each in descriptors]
    for each in sockets:
        each.set_inheritable(False)  # programs of tools are no gateway processes
    address = Address(host, int(port))
    apply_address(address)
    REGISTRY.unregister(exposition.database_figures)
    connection, listening = sockets
    GatewayProcess(connection, name_for_clients(address)).serve(listening)


def name_for_clients(main_address: Address) -> str:
    """A client may reach a server that listens on all interfaces, or in a private
    network, by another address."""
    if settings.PUBLIC_URL:
        return str(settings.PUBLIC_URL)
    try:
        ip = ip_address(main_address.host)
    except ValueError:  # a name
        return main_address.url
    if ip.is_loopback or ip.is_global:
        return main_address.url
    return f"port {main_address.port} of this server"
