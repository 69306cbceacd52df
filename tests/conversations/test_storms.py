"""The storms that one process may meet."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import pytest

from tests.serving import ServerProcess

from .clients import Program
from .stopping import SETTINGS, until
from .storms import weather

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
