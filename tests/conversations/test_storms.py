"""The storms that one process may meet."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import pytest

from tests.serving import ServerProcess, free_port

from .clients import Program, Screen, sign_in
from .following import Door
from .standing_still import NUMBER, WISH, stand_still
from .stopping import SETTINGS, teach, until
from .storms import weather
from .upstream import Upstream

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]

SYNC = "from tools.models import Tool; Tool.objects.sync()"


async def test_an_event_loop_that_was_blocked_goes_on_where_it_was(
    start_server: Callable[..., ServerProcess],
):
    server = start_server(**SETTINGS)
    server.manage("shell", "-v0", "-c", SYNC)

    async def block() -> None:
        await blocked([server])

    await weather([Program(server)], block)


async def test_a_process_that_was_stopped_goes_on_where_it_was(
    start_server: Callable[..., ServerProcess],
):
    port = free_port()
    server = start_server(**SETTINGS)
    teach(server, port)
    token, cookie = server.create_token(), await sign_in(server, "admin")
    doors = [Door(server, token), Door(server, token, cookie)]
    async with Upstream(port) as upstream:

        async def all_is_said(_: Screen) -> bool:
            return upstream.counted_to(WISH) == NUMBER

        await stand_still(server, doors, doors[0].program, all_is_said)


async def blocked(servers: list[ServerProcess]) -> None:
    """The event loop of each, for ten seconds; in all of them at once."""
    for server in servers:
        assert server.process
        server.process.send_signal(signal.SIGUSR1)
    notes = servers[0].data / "blocked"

    async def is_over() -> bool:
        told = await asyncio.to_thread(_lines, notes)
        return all(str(s.process and s.process.pid) in told for s in servers)

    await until(is_over)


def _lines(path) -> list[str]:
    return path.read_text().split() if path.exists() else []
