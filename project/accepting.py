"""New connections, many in a round of the event loop and not one.

libuv, and so uvloop, takes one connection in each round of the event loop. Where
hundreds of streams talk a round takes long, and who comes then waits for seconds: of
five hundred clients who came within one second the last was let in after four. Here
many are taken at once, as asyncio's own loop and Twisted do it.
https://github.com/libuv/libuv/pull/3696
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

_AT_ONCE = 16  # connections; streams, and other processes at the port, have a turn too

Listen = Callable[..., Awaitable[Any]]


class Door:
    """What the server that is about to listen on `loop` is helped by."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        if type(loop).__module__ == "uvloop":
            self._listen: Listen = loop.create_server
            loop.create_server = self._create_server  # type: ignore[assignment,method-assign]

    def close(self) -> None:
        """From now on the server takes its connections alone."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()

    async def _create_server(
        self, protocol: Callable[[], Any], *args: Any, **options: Any
    ) -> Any:
        server = await self._listen(protocol, *args, **options)
        if not options.get("ssl"):
            for listening in server.sockets:
                self._take_beside(listening, protocol)
        return server

    def _take_beside(self, listening: Any, protocol: Callable[[], Any]) -> None:
        own = socket.socket(fileno=socket.dup(listening.fileno()))
        own.setblocking(False)
        self._sockets.append(own)
        self._loop.add_reader(own, self._take, own, protocol)

    def _take(self, listening: socket.socket, protocol: Callable[[], Any]) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except OSError:  # none is left, or no file descriptor: the server tells
                return
            task = self._loop.create_task(self._connect(connection, protocol))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect(
        self, connection: socket.socket, protocol: Callable[[], Any]
    ) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(protocol, connection)
        except OSError:  # who came has gone again
            connection.close()
