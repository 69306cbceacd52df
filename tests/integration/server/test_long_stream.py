from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

import pytest

from tests.integration.clients import sign_in
from tests.integration.following import EntryPoint
from tests.integration.long_streams import (
    Reading,
    Report,
    assert_replayed_from_rows,
    read_by_all,
    snapshot_text,
)
from tests.integration.stopping import SETTINGS, teach
from tests.serving import ServerProcess, free_port

pytestmark = [
    pytest.mark.server,
    pytest.mark.browser,
    pytest.mark.timeout(900),
    pytest.mark.slow,
]


async def test_a_long_answer_is_read_by_all_through_a_crash(
    start_server: Callable[..., ServerProcess],
    chromium: str,
    record_property: Report,
):
    port = free_port()
    server = start_server(**SETTINGS)
    teach(server, port)
    token, cookie = server.create_token(), await sign_in(server, "admin")
    doors = [EntryPoint(server, token), EntryPoint(server, token, cookie)]

    def report(name: str, value: object) -> None:
        print(f"{name}: {value}")
        record_property(name, value)

    async def crash(reading: Reading) -> tuple[str, str]:
        await reading.reach(0.6)
        shown, stored = reading.screen.text, _stored_text(server, reading.turn)
        server.kill()
        await asyncio.to_thread(server.start)
        return shown, stored

    reading = await read_by_all(server, doors, port, chromium, report, crash)
    server.restart()
    await assert_replayed_from_rows(reading)


def _stored_text(server: ServerProcess, turn: str) -> str:
    path = server.data / "parley.sqlite3"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as rows:
        query = "SELECT partial FROM conversations_turn WHERE id = ?"
        (partial,) = rows.execute(query, [turn]).fetchone()
    rows.close()
    return snapshot_text(partial)
