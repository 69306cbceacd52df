"""Many processes, many streams at once: every follower reads the whole of each."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.hanging.tools import LARGE
from tests.integration.clients import Program, sign_in
from tests.integration.following import EntryPoint, assert_no_gap, wander, whole
from tests.integration.stopping import MODEL, SETTINGS, calls, teach
from tests.integration.upstream import Upstream, counted
from tests.scaled import Cluster, PostgresProcess, migrated
from tests.serving import free_port

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900), pytest.mark.slow]

STREAMS = int(os.environ.get("STREAMS", "200"))
SECONDS = int(os.environ.get("STREAM_SECONDS", "2"))
NUMBER = 50 * SECONDS  # deltas of each
WANDERERS = STREAMS // 10  # streams with a second subscriber, which changes processes


@pytest.fixture
def postgres() -> Iterator[str]:
    """With room for the connections of eight processes."""
    process = PostgresProcess()
    try:
        yield process.start().url
    finally:
        process.end()


@pytest.fixture
def cluster(tmp_path: Path, postgres: str) -> Iterator[Cluster]:
    with migrated(tmp_path, postgres) as template:
        cluster = Cluster(
            tmp_path, template, webs=4, workers=4, postgres=postgres, **SETTINGS
        )
        try:
            yield cluster.start()
        finally:
            cluster.end()


async def test_two_hundred_streams_are_read_whole_beside_a_large_result(
    cluster: Cluster,
):
    port = free_port()
    teach(cluster.webs[0], port)
    token = cluster.webs[0].create_token()
    cookie = await sign_in(cluster.webs[0], "admin")
    programs = [Program(web, token=token) for web in cluster.webs]
    doors = [EntryPoint(web, token, c) for web in cluster.webs for c in ("", cookie)]
    text = counted(NUMBER)

    async def one(number: int) -> None:
        program, other = programs[number % 4], programs[(number + 1) % 4]
        conversation = await program.conversation()
        wish = f"count to {NUMBER} in {SECONDS} s, together ({number})"
        turn = await program.create_turn(conversation, wish, model=MODEL)
        following = [whole(other, turn)]
        if number < WANDERERS:
            length = len(text)
            following.append(wander(doors, conversation, turn, length=length, times=2))
        for screen in await asyncio.gather(*following):
            assert screen.text == text
            assert_no_gap(screen)
            assert screen.positions[0] == "1-0"

    async def large() -> None:
        conversation = await programs[0].conversation()
        turn = await programs[0].create_turn(
            conversation, "a large result", model=MODEL
        )
        assert (await whole(programs[1], turn)).text == "Done."
        (call,) = await calls(programs[2], conversation)
        assert call["state"] == "completed"
        with psycopg.connect(cluster.database.url) as rows:
            query = "SELECT size FROM conversations_attachment"
            assert rows.execute(query).fetchall() == [(LARGE,)]

    async with Upstream(port, parties=STREAMS) as upstream, asyncio.TaskGroup() as all_:
        for number in range(STREAMS):
            all_.create_task(one(number))
        await upstream.begun.wait()
        all_.create_task(large())
