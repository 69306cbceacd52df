"""The gateway processes, started and watched by the process with the engine.

That process counts for all: token buckets and open requests. A gateway process that
ends is started again, after a pause that grows while it ends soon. When the process
with the engine ends, the others lose their channel and drain.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from conversations.access import overload, rate_limits
from conversations.access.errors import ServerBusy, TooManyConnections
from conversations.access.rate_limits import Charge
from conversations.engine import notifications
from conversations.engine.connection_revocation import Credential, open_connections
from project.environment.address import Address
from project.monitoring import exposition
from project.monitoring.exposition import Family
from project.server.gateway_processes.channel import PATIENCE, Channel
from project.server.uvicorn_server import Hooks

FIRST_PAUSE = 0.5  # seconds before a process that has ended is started again
MAX_PAUSE = 30.0
HEALTHY_AFTER = 60.0  # seconds of running after which the pause is the first one again
LAST_GRACE = 3.0  # seconds beyond the grace of a drain, and to exit without a channel
#: Its arguments are the child's four and the paths of modules. Not PYTHONPATH, which
#: programs that a process starts would inherit, of other interpreters too.
_PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of Ctrl-C
sys.path[:] = sys.argv[5:]
from project.server.gateway_processes.child import main
main(sys.argv[1:5])
"""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    channel: Channel
    #: Functions that remove its open requests, by its number of the request.
    removals: dict[int, Callable[[], None]] = field(default_factory=dict)


class GatewayProcesses:
    def __init__(
        self,
        listening: Sequence[socket.socket],
        own: Address,
        main_address: Address,
        grace: float,
    ) -> None:
        """`listening`: a socket for each process, all at the address `own`.
        `main_address`: that of the process with the engine. `grace`: seconds that
        answers get when the server is stopped."""
        self._listening = listening
        self._main_address = main_address
        self._grace = grace
        self._draining = asyncio.Event()
        self._deadline = 0.0  # of the answers, in the event loop's time
        self._children: dict[int, _Child] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self.description = f"Gateway processes: {len(listening)}, at {own.url}/v1"

    def add_to(self, hooks: Hooks) -> Hooks:
        """Hooks that start and end these processes, too."""

        async def start() -> None:
            await hooks.start()
            self._start()

        async def drain() -> None:
            self._drain()
            await hooks.drain()

        async def close() -> None:
            await self._close()
            await hooks.close()

        return Hooks(start=start, drain=drain, close=close)

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        notifications.relays.append(self._relay)
        exposition.collect_others = self.collect_metrics
        for number in range(1, len(self._listening) + 1):
            self._tasks.append(self._loop.create_task(self._supervise(number)))

    def _drain(self) -> None:
        """Let the processes finish their answers; `_close` waits for them, so that the
        pages of this process need not."""
        self._draining.set()
        self._deadline = self._loop.time() + self._grace + LAST_GRACE
        for listening in self._listening:
            listening.close()  # new connections are refused, not left waiting
        for child in self._children.values():
            child.process.terminate()

    async def _close(self) -> None:
        """Wait for the processes, and end them after the grace."""
        self._draining.set()  # a start that failed has not
        if self._tasks and (left := self._deadline - self._loop.time()) > 0:
            await asyncio.wait(self._tasks, timeout=left)
        exposition.collect_others = list
        if self._relay in notifications.relays:
            notifications.relays.remove(self._relay)
        for child in self._children.values():
            child.process.kill()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_GRACE)

    def collect_metrics(self) -> list[tuple[str, list[Family]]]:
        """The name and the metrics of each process that answers. For threads."""
        asking = asyncio.run_coroutine_threadsafe(self._collect_metrics(), self._loop)
        return asking.result(2 * PATIENCE)

    async def _collect_metrics(self) -> list[tuple[str, list[Family]]]:
        children = list(self._children.items())
        answers = await asyncio.gather(
            *(child.channel.ask("metrics") for _, child in children),
            return_exceptions=True,
        )
        return [
            (f"gateway-{number}", answer)
            for (number, _), answer in zip(children, answers, strict=True)
            if not isinstance(answer, BaseException)
        ]

    def _relay(self, kind: str) -> None:
        for child in self._children.values():
            child.channel.notify("changed", kind)

    # One process

    async def _supervise(self, number: int) -> None:
        pause = FIRST_PAUSE
        while not self._draining.is_set():
            began = self._loop.time()
            try:
                ended = f"status {await self._run(number)}"
            except Exception as exc:  # no free descriptor, for example
                if self._draining.is_set():
                    return  # a drain closes the sockets
                logger.exception("gateway process %d could not be served", number)
                ended = type(exc).__name__
            if self._draining.is_set():
                return
            if self._loop.time() - began > HEALTHY_AFTER:
                pause = FIRST_PAUSE
            logger.warning(
                "gateway process %d has ended (%s); it is started again in %.1f s",
                number,
                ended,
                pause,
            )
            try:
                async with asyncio.timeout(pause):
                    await self._draining.wait()
            except TimeoutError:
                pause = min(2 * pause, MAX_PAUSE)

    async def _run(self, number: int) -> int:
        """Start the process and serve its requests. Returns its exit status."""
        own, other = socket.socketpair()
        with other:
            process = await asyncio.to_thread(self._spawn, number, other)
        try:
            channel = await Channel.open(own, self._handlers(number))
            child = self._children[number] = _Child(process, channel)
            if self._draining.is_set():
                process.terminate()
            try:
                await channel.run()
            finally:
                del self._children[number]
                for remove in child.removals.values():
                    remove()
        finally:
            status = await asyncio.to_thread(_wait, process)
        return status

    def _spawn(self, number: int, connection: socket.socket) -> subprocess.Popen[bytes]:
        listening = self._listening[number - 1]
        descriptors = (connection.fileno(), listening.fileno())
        address = self._main_address
        return subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", _PROGRAM),
                *(str(each) for each in (*descriptors, address.host, address.port)),
                *(each or os.getcwd() for each in sys.path),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
        )

    # Its requests

    def _handlers(self, number: int) -> dict[str, Callable[..., Any]]:
        def open_request(
            request: int, user_id: int, token_id: int, is_work: bool
        ) -> Any:
            removals = self._children[number].removals
            try:
                removals[request] = register(user_id, token_id, is_work=is_work)
            except (ServerBusy, TooManyConnections) as exc:
                return type(exc).__name__, str(exc), exc.retry_after
            return None

        def close_request(request: int) -> None:
            if remove := self._children[number].removals.pop(request, None):
                remove()

        return {"take": _take, "open": open_request, "close": close_request}


def register(user_id: int, token_id: int, *, is_work: bool) -> Callable[[], None]:
    """Count an open request. Its own process ends it if the token is revoked. Raises
    TooManyConnections, and ServerBusy for new work."""
    if is_work:
        overload.check_connections()
    credential = Credential(user_id, token_id=token_id)
    return open_connections().add(credential, lambda: None)


def _take(owner: str, charges: Sequence[Sequence[Any]]) -> tuple[bool, list[float]]:
    verdict = rate_limits.take(owner, [Charge(*each) for each in charges])
    return verdict.is_allowed, [bucket.level for bucket in verdict.buckets]


def _wait(process: subprocess.Popen[bytes]) -> int:
    """The exit status of a process that has closed its channel."""
    try:
        return process.wait(LAST_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
