"""The storms that one process may meet."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import pytest

from tests.integration.clients import Program, Screen, sign_in
from tests.integration.following import EntryPoint
from tests.integration.standing_still import NUMBER, WISH, stand_still
from tests.integration.stopping import SETTINGS, teach, until
from tests.integration.storms import Grows, weather
from tests.integration.upstream import Upstream
from tests.serving import ServerProcess, free_port

pytestmark = [pytest.mark.server, pytest.mark.timeout(900), pytest.mark.slow]

SYNC = "from tools.models import Tool; Tool.objects.sync()"


async def test_an_event_loop_that_was_blocked_goes_on_where_it_was(
    start_server: Callable[..., ServerProcess],
):
    server = start_server(**SETTINGS)
    server.manage("shell", "-v0", "-c", SYNC)

    async def block(grow: Grows) -> None:
        await blocked([server])

    await weather([Program(server)], block)


async def test_a_process_that_was_stopped_goes_on_where_it_was(
    start_server: Callable[..., ServerProcess],
):
    port = free_port()
    server = start_server(**SETTINGS)
    teach(server, port)
    token, cookie = server.create_token(), await sign_in(server, "admin")
    doors = [EntryPoint(server, token), EntryPoint(server, token, cookie)]
    async with Upstream(port) as upstream:

        async def is_fully_streamed(_: Screen) -> bool:
            return upstream.counted_to(WISH) == NUMBER

        await stand_still(server, doors, doors[0].program, is_fully_streamed)


async def blocked(servers: list[ServerProcess]) -> None:
    """The event loop of each, for ten seconds; in all of them at once."""
    for server in servers:
        assert server.process
        server.process.send_signal(signal.SIGUSR1)
    notes = servers[0].data / "blocked"

    async def is_over() -> bool:
        lines = await asyncio.to_thread(_lines, notes)
        return all(str(s.process and s.process.pid) in lines for s in servers)

    await until(is_over)


def _lines(path) -> list[str]:
    return path.read_text().split() if path.exists() else []
