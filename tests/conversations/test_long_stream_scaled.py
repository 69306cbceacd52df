from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.scaled import REDIS, Cluster, migrated
from tests.serving import ServerProcess, free_port

from .clients import Screen, sign_in
from .following import Door, assert_nothing_twice, read, wander, whole
from .long_stream import (
    TEXT,
    TIMES,
    WISH,
    Onlooker,
    Report,
    after,
    assert_little_was_told_again,
    assert_told_from_rows,
    kept_text,
)
from .stopping import MODEL, SETTINGS, teach
from .upstream import Upstream

pytestmark = [pytest.mark.scaled, pytest.mark.browser, pytest.mark.timeout(900)]


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


async def test_two_thousand_numbers_are_read_by_all_through_crashes(
    cluster: Cluster, chromium: str, record_property: Report
):
    port = free_port()
    seen, killed, deployed = cluster.webs
    running, other = cluster.workers
    teach(seen, port)
    token, cookie = seen.create_token(), await sign_in(seen, "admin")
    doors = [
        Door(web, token, signed_in)
        for web in cluster.webs
        for signed_in in ("", cookie)
    ]
    program, screen = doors[0].program, Screen()

    def report(name: str, value: object) -> None:
        print(f"scaled, {name}: {value}")
        record_property(name, value)

    async with Upstream(port), asyncio.TaskGroup() as group:
        conversation = await program.conversation()
        turn = await program.ask(conversation, WISH, model=MODEL)
        onlooker = Onlooker(seen, conversation, reload_at=0.2)
        group.create_task(onlooker.look_on(chromium, report))
        wanderer = group.create_task(
            wander(doors, conversation, turn, length=len(TEXT), times=TIMES)
        )
        await read(program.follow(turn), screen, length=after(0.35))
        group.create_task(_again(killed, ServerProcess.kill))
        await read(program.follow(turn, screen.position), screen, length=after(0.6))
        shown, kept = screen.text, _kept(cluster, turn)
        running.kill()
        other.go_on()
        await read(program.follow(turn, screen.position), screen, length=after(0.8))
        group.create_task(_again(deployed, ServerProcess.stop))
        await whole(program, turn, screen)
    assert screen.text == wanderer.result().text == TEXT
    assert_nothing_twice(screen)
    assert_nothing_twice(wanderer.result())
    assert_little_was_told_again(screen, shown, kept, report)
    with redis.Redis.from_url(REDIS) as known:
        assert known.delete(f"parley:turn:{turn}") == 1  # as its time does
    await _again(seen, ServerProcess.stop)
    await assert_told_from_rows(program, turn, screen)


async def _again(server: ServerProcess, end: object) -> None:
    assert callable(end)
    await asyncio.to_thread(end, server)
    await asyncio.to_thread(server.start)


def _kept(cluster: Cluster, turn: str) -> str:
    with psycopg.connect(cluster.database.url) as rows:
        query = "SELECT partial FROM conversations_turn WHERE id = %s"
        found = rows.execute(query, [turn]).fetchone()
    assert found
    return kept_text(found[0])
