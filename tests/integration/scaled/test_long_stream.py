from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

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
from tests.scaled import REDIS, Cluster, migrated
from tests.serving import ServerProcess, free_port

pytestmark = [
    pytest.mark.scaled,
    pytest.mark.browser,
    pytest.mark.timeout(900),
    pytest.mark.slow,
]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Its second worker sleeps until it is needed."""
    with migrated(tmp_path) as template:
        cluster = Cluster(tmp_path, template, webs=3, workers=2, **SETTINGS)
        try:
            cluster.start()
            cluster.workers[1].pause()
            yield cluster
        finally:
            cluster.end()


async def test_a_long_answer_is_read_by_all_through_crashes(
    cluster: Cluster, chromium: str, record_property: Report
):
    port = free_port()
    seen, killed, deployed = cluster.webs
    running, other = cluster.workers
    teach(seen, port)
    token, cookie = seen.create_token(), await sign_in(seen, "admin")
    doors = [
        EntryPoint(web, token, signed_in)
        for web in cluster.webs
        for signed_in in ("", cookie)
    ]

    def report(name: str, value: object) -> None:
        print(f"scaled, {name}: {value}")
        record_property(name, value)

    async def crash(reading: Reading) -> tuple[str, str]:
        await reading.reach(0.35)
        reading.beside.create_task(_again(killed, ServerProcess.kill))
        await reading.reach(0.6)
        shown, stored = reading.screen.text, _stored_text(cluster, reading.turn)
        running.kill()
        other.go_on()
        await reading.reach(0.8)
        reading.beside.create_task(_again(deployed, ServerProcess.stop))
        return shown, stored

    reading = await read_by_all(seen, doors, port, chromium, report, crash)
    with redis.Redis.from_url(REDIS) as known:
        assert known.delete(f"parley:turn:{reading.turn}") == 1  # as its time does
    await _again(seen, ServerProcess.stop)
    await assert_replayed_from_rows(reading)


async def _again(server: ServerProcess, end: object) -> None:
    assert callable(end)
    await asyncio.to_thread(end, server)
    await asyncio.to_thread(server.start)


def _stored_text(cluster: Cluster, turn: str) -> str:
    with psycopg.connect(cluster.database.url) as rows:
        query = "SELECT partial FROM conversations_turn WHERE id = %s"
        found = rows.execute(query, [turn]).fetchone()
    assert found
    return snapshot_text(found[0])
