"""The promises of several web and worker processes over PostgreSQL alone: what is
promised over Redis, and what happens to the connections that replace it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.clients import Program, Screen, events_of_turn, sign_in, socket
from tests.integration.following import assert_no_gap, read, whole
from tests.integration.scaled.test_turns import COUNT, NUMBERS
from tests.integration.stopping import SETTINGS, until
from tests.integration.storms import Grows, weather
from tests.scaled import Cluster, PostgresProcess, migrated

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900), pytest.mark.slow]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresProcess]:
    process = PostgresProcess()
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresProcess
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("alone")
    options = {**SETTINGS, "DROP_HINTS": "0.1"}
    with migrated(folder, postgres.url) as template:
        cluster = Cluster(
            folder,
            template,
            webs=3,
            workers=2,
            redis=None,
            postgres=postgres.url,
            **options,
        )
        try:
            yield cluster.start()
        finally:
            cluster.end()


@pytest.fixture(scope="module")
def programs(cluster: Cluster) -> list[Program]:
    token = cluster.webs[0].create_token()
    return [Program(web, token=token) for web in cluster.webs]


async def test_a_subscriber_that_changes_process_misses_nothing(
    cluster: Cluster, programs: list[Program]
):
    cookie = await sign_in(cluster.webs[0], "admin")
    conversation = await programs[0].conversation()
    turn = await programs[1].create_turn(conversation, f"/long {COUNT}")
    screen, dice = Screen(), random.Random(7)
    while not screen.over:
        limit, number = dice.randint(1, 25), dice.randrange(3)
        if dice.random() < 0.5:
            await read(programs[number].follow(turn, screen.position), screen, limit)
            continue
        async with socket(cluster.webs[number], conversation, cookie) as connection:
            wish = {"type": "turn.follow", "turn": turn, "after": screen.position}
            await connection.send(json.dumps(wish))
            await read(events_of_turn(connection, turn), screen, limit)
    assert screen.text == NUMBERS
    assert_no_gap(screen)
    assert screen.positions[0] == "1-0"


async def test_stop_from_a_process_that_does_not_run_it(programs: list[Program]):
    _, program, other = programs
    turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
    screen = Screen()
    await read(program.follow(turn), screen, limit=20)
    await other.cancel(turn)
    await whole(program, turn, screen)
    assert screen.events[-1]["type"] == "response.incomplete"
    row = await other.turn(turn)
    assert (row["status"], row["incomplete_reason"]) == ("cancelled", "cancelled")
    assert NUMBERS.startswith(screen.text)


async def test_pages_at_other_processes_learn_of_a_turn(
    cluster: Cluster, programs: list[Program]
):
    cookie = await sign_in(cluster.webs[0], "admin")
    conversation = await programs[0].conversation()
    async with (
        socket(cluster.webs[1], conversation, cookie) as page,
        asyncio.timeout(60),
    ):
        while True:  # one announcement in ten is dropped
            turn = await programs[0].create_turn(conversation, "/echo Hello")
            announced = asyncio.ensure_future(_is_announced(page, turn))
            await whole(programs[2], turn)
            done, _ = await asyncio.wait([announced], timeout=2)
            announced.cancel()
            if done:
                return


async def _is_announced(page: object, turn: str) -> None:
    async for message in page:  # type: ignore[attr-defined]
        if json.loads(message).get("turn") == turn:
            return


async def test_a_killed_worker_loses_nothing_that_was_shown(
    cluster: Cluster, programs: list[Program]
):
    program = programs[0]
    turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
    screen = Screen()
    await read(program.follow(turn), screen, limit=70)
    for worker in cluster.workers:  # nothing says which one runs it
        worker.kill()
        worker.start()
    await whole(program, turn, screen)
    assert screen.text == NUMBERS
    row = await program.turn(turn)
    assert row["status"] == "completed"
    assert row["response"]["output"][-1]["content"][0]["text"] == NUMBERS


@pytest.mark.parametrize("name", ["listener", "events"])
async def test_connections_are_ended_again_and_again(
    cluster: Cluster, programs: list[Program], name: str
):
    """`listener`: nothing announces events. `events`: nothing writes or reads them."""
    processes = len(cluster.webs) + len(cluster.workers)
    condition = f"application_name = 'parley {name}'"
    count = f"SELECT count(*) FROM pg_stat_activity WHERE {condition}"
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {condition}"

    async def end_all(grow: Grows) -> None:
        with psycopg.connect(cluster.database.url, autocommit=True) as rows:

            async def all_are_there() -> bool:
                found = rows.execute(count).fetchone()
                return bool(found and found[0] >= processes)

            for _ in range(5):
                await until(all_are_there)
                assert len(rows.execute(end).fetchall()) >= processes

    await weather(programs, end_all)


async def test_postgresql_crashes_and_forgets_all_events(
    cluster: Cluster, programs: list[Program], postgres: PostgresProcess
):
    counts: list[int] = []

    async def restart(grow: Grows) -> None:
        counts.append(_count_batches(cluster))
        await asyncio.to_thread(postgres.crash)
        await asyncio.to_thread(postgres.start)
        with psycopg.connect(cluster.database.url) as rows:
            query = "SELECT relpersistence FROM pg_class WHERE relname = %s"
            found = rows.execute(query, ["conversations_eventbatch"]).fetchone()
            assert found in (("u",), (b"u",))
        await grow()

    await weather(programs, restart)
    assert counts[0] > 0


def _count_batches(cluster: Cluster) -> int:
    with psycopg.connect(cluster.database.url) as rows:
        found = rows.execute("SELECT count(*) FROM conversations_eventbatch").fetchone()
        assert found
        return int(found[0])


async def test_what_follows_an_event_is_read_without_its_announcement(
    cluster: Cluster, programs: list[Program]
):
    """So that none of the above depends on announcements: each process drops some."""
    record = cluster.webs[0].data / "dropped"

    async def an_event_was_dropped() -> bool:
        turn = await programs[1].create_turn(
            await programs[1].conversation(), "/long 20"
        )
        await whole(programs[0], turn)
        return record.exists() and "event" in record.read_text().split()

    await until(an_event_was_dropped)
