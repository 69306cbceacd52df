"""The durability promises, with several web and worker processes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import InvalidHandshake

from tests.integration.clients import Program, Screen, events_of_turn, sign_in, socket
from tests.integration.following import assert_no_gap, read, whole
from tests.programs import need_program
from tests.scaled import Cluster, RedisProcess, migrated

pytestmark = [pytest.mark.scaled, pytest.mark.slow]

COUNT = 120  # words of the demo's answer, at its human pace
NUMBERS = " ".join(str(number) for number in range(1, COUNT + 1))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with migrated(tmp_path_factory.mktemp("template")) as name:
        yield name


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, template: str
) -> Iterator[Cluster]:
    """For tests that leave its processes as they find them."""
    cluster = Cluster(tmp_path_factory.mktemp("shared"), template, webs=3, workers=2)
    try:
        yield cluster.start()
    finally:
        cluster.end()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    need_program("redis-server")
    process = RedisProcess(tmp_path).start()
    yield process
    process.kill()


async def test_a_subscriber_that_changes_process_misses_nothing(shared: Cluster):
    programs = [Program(web) for web in shared.webs]
    cookie = await sign_in(shared.webs[0], "admin")
    conversation = await programs[0].conversation()
    turn = await programs[1].create_turn(conversation, f"/long {COUNT}")
    screen, dice = Screen(), random.Random(7)
    while not screen.over:
        limit, number = dice.randint(1, 25), dice.randrange(3)
        if dice.random() < 0.5:
            await read(programs[number].follow(turn, screen.position), screen, limit)
            continue
        async with socket(shared.webs[number], conversation, cookie) as connection:
            wish = {"type": "turn.follow", "turn": turn, "after": screen.position}
            await connection.send(json.dumps(wish))
            await read(events_of_turn(connection, turn), screen, limit)
    assert screen.text == NUMBERS
    assert_no_gap(screen)
    assert screen.positions[0] == "1-0"


async def test_stop_from_a_process_that_does_not_run_it(shared: Cluster):
    program, other = Program(shared.webs[1]), Program(shared.webs[2])
    turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
    screen = Screen()
    await read(program.follow(turn), screen, limit=20)
    await other.cancel(turn)
    await whole(program, turn, screen)
    assert screen.events[-1]["type"] == "response.incomplete"
    row = await other.turn(turn)
    assert (row["status"], row["incomplete_reason"]) == ("cancelled", "cancelled")
    assert NUMBERS.startswith(screen.text)
    assert row["response"]["output"][0]["content"][0]["text"] == screen.text
    assert row["model_calls"][0]["status"] == "cancelled"


async def test_many_turns_run_side_by_side(shared: Cluster):
    programs = [Program(web) for web in shared.webs]

    async def one(number: int) -> str:
        program, other = programs[number % 3], programs[(number + 1) % 3]
        turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
        return (await whole(other, turn)).text

    assert set(await asyncio.gather(*map(one, range(20)))) == {NUMBERS}


@pytest.fixture
def start_cluster(tmp_path: Path, template: str) -> Iterator:
    clusters: list[Cluster] = []

    def start(**options) -> Cluster:
        clusters.append(cluster := Cluster(tmp_path, template, **options))
        return cluster.start()

    yield start
    for cluster in clusters:
        cluster.end()


async def test_a_killed_worker_loses_nothing_that_was_shown(start_cluster):
    cluster = start_cluster(webs=1, workers=1)
    program = Program(cluster.webs[0])
    turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
    screen = Screen()
    await read(program.follow(turn), screen, limit=70)
    shown, again = screen.text, len(screen.events)
    cluster.workers[0].kill()
    cluster.workers[0].start()
    await whole(program, turn, screen)
    assert screen.text == NUMBERS
    resets = [e for e in screen.events[again:] if e["type"] == "parley:step.reset"]
    assert len(resets) == 1
    assert NUMBERS.startswith(shown)
    row = await program.turn(turn)
    assert row["status"] == "completed"
    assert row["response"]["output"][-1]["content"][0]["text"] == NUMBERS


async def test_a_killed_web_process_is_not_missed(start_cluster):
    cluster = start_cluster(webs=2, workers=1)
    program, other = Program(cluster.webs[0]), Program(cluster.webs[1])
    turn = await other.create_turn(await other.conversation(), f"/long {COUNT}")
    screen = Screen()
    await read(other.follow(turn), screen, limit=30)
    cluster.webs[1].kill()
    await whole(program, turn, screen)
    assert screen.text == NUMBERS
    assert_no_gap(screen)


async def test_workers_that_are_replaced_hand_their_turns_over(start_cluster):
    cluster = start_cluster(webs=2, workers=2, DRAIN_GRACE="0.3")
    program = Program(cluster.webs[0])
    turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
    screen = Screen()
    for worker in cluster.workers * 2:
        await read(program.follow(turn, screen.position), screen, limit=15)
        assert worker.stop() == 0
        worker.start()
    await whole(program, turn, screen)
    assert screen.text == NUMBERS


async def test_turns_go_on_while_redis_is_away(start_cluster, redis: RedisProcess):
    cluster = start_cluster(webs=1, workers=1, redis=redis.url)
    program = Program(cluster.webs[0])
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, "/long 500")
    screen = Screen()
    await read(program.follow(turn), screen, limit=20)
    redis.kill()
    before = len(screen.text)
    await read(program.follow(turn, screen.position), screen, limit=2)
    assert len(screen.text) > before  # from rows
    redis.start()  # and has forgotten everything
    late = await whole(program, turn)
    await whole(program, turn, screen)
    assert "parley:step.reset" not in {event["type"] for event in screen.events}
    assert screen.text == late.text == " ".join(map(str, range(1, 501)))
    after = await program.create_turn(conversation, "/echo Here again")
    assert (await whole(program, after)).text == "Here again"


async def test_a_turn_runs_from_end_to_end_without_redis(start_cluster, redis):
    cluster = start_cluster(webs=1, workers=1, redis=redis.url)
    redis.kill()
    program = Program(cluster.webs[0])
    turn = await program.create_turn(await program.conversation(), "/echo All the same")
    assert (await whole(program, turn)).text == "All the same"


async def test_nothing_is_lost_to_a_database_that_restarts(start_cluster):
    cluster = start_cluster(webs=1, workers=1)
    cookie = await sign_in(cluster.webs[0], "admin")
    program = Program(cluster.webs[0])
    turn = await program.create_turn(await program.conversation(), f"/long {COUNT}")
    screen = Screen()
    await read(program.follow(turn), screen, limit=20)
    cluster.database.allow(connections=False)
    cluster.database.end_connections()
    async with program.http() as http:
        answer = await http.get("/api/conversations/")
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.json()["error"]["code"] == "database_unavailable"
    async with program.http() as http:
        for path in ("/v1/responses", "/v1/chat/completions", "/v1/messages"):
            answer = await http.post(path, json={"model": "demo", "input": "Hello"})
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0
    with pytest.raises(InvalidHandshake):
        async with socket(cluster.webs[0], "conv_x", cookie):
            pass
    assert "Traceback" not in cluster.log()
    cluster.database.allow(connections=True)
    await whole(program, turn, screen)
    assert screen.text == NUMBERS
    row = await program.turn(turn)
    assert row["status"] == "completed"
    turn = await program.create_turn(row["conversation"], "/echo Here again")
    assert (await whole(program, turn)).text == "Here again"
