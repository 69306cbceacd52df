"""More promises of several web and worker processes: Stop from elsewhere, one turn for
one Idempotency-Key, order, hints that get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.integration.clients import Program
from tests.integration.following import whole
from tests.integration.promises import (
    assert_turns_run_in_order,
    one_turn_for_one_key,
    side_by_side,
)
from tests.integration.server.test_stop_and_order import BOB
from tests.integration.stopping import PHASES, SETTINGS, stop, stop_call, teach, until
from tests.integration.upstream import Upstream
from tests.scaled import Cluster, migrated
from tests.serving import free_port

pytestmark = [pytest.mark.scaled, pytest.mark.slow]

Report = Callable[[str, object], None]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with migrated(tmp_path_factory.mktemp("template")) as name:
        yield name


@pytest.fixture(scope="module")
def upstream_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def hanging(
    tmp_path_factory: pytest.TempPathFactory, template: str, upstream_port: int
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("hanging")
    cluster = Cluster(folder, template, webs=2, workers=2, **SETTINGS)
    try:
        cluster.start()
        teach(cluster.webs[0], upstream_port)
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def programs(hanging: Cluster) -> list[Program]:
    token = hanging.webs[0].create_token()
    return [Program(web, token=token) for web in hanging.webs]


@pytest.mark.parametrize("phase", PHASES)
async def test_stop_from_another_process_in_every_phase(
    hanging: Cluster,
    programs: list[Program],
    upstream_port: int,
    phase: str,
    record_property: Report,
):
    async with Upstream(upstream_port) as upstream:
        took = await stop(phase, *programs, upstream, hanging.webs[0].data)
    print(f"scaled stop {phase}: {took} ms")
    record_property("milliseconds", took)


async def test_stop_of_a_call_in_the_background_from_another_process(
    hanging: Cluster,
    programs: list[Program],
    upstream_port: int,
    record_property: Report,
):
    async with Upstream(upstream_port) as upstream:
        took = await stop_call(*programs, upstream, hanging.webs[0].data)
    print(f"scaled stop of a background call: {took} ms")
    record_property("milliseconds", took)


async def test_a_hundred_posts_to_two_processes_with_one_key_are_one_turn(
    hanging: Cluster, programs: list[Program]
):
    hanging.webs[0].manage("shell", "-v0", "-c", BOB)
    await one_turn_for_one_key(programs, Program(hanging.webs[1], "bob"))


async def test_fifty_messages_at_once_are_answered_in_order(programs: list[Program]):
    await assert_turns_run_in_order(programs, 50)


async def test_two_hundred_conversations_run_side_by_side(
    programs: list[Program], upstream_port: int
):
    await side_by_side(programs, upstream_port, 200)


@pytest.fixture(scope="module")
def deaf(tmp_path_factory: pytest.TempPathFactory, template: str) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("deaf")
    options = {**SETTINGS, "DROP_HINTS": "0.3"}
    cluster = Cluster(folder, template, webs=3, workers=2, **options)
    try:
        yield cluster.start()
    finally:
        cluster.end()


WORDS = 60
NUMBERS = " ".join(str(number) for number in range(1, WORDS + 1))


async def test_hints_that_get_lost_lose_nothing(deaf: Cluster):
    programs = [Program(web) for web in deaf.webs]

    async def one(number: int) -> str:
        program, other = programs[number % 3], programs[(number + 1) % 3]
        turn = await program.create_turn(await program.conversation(), f"/long {WORDS}")
        text = (await whole(other, turn)).text
        assert (await program.turn(turn))["status"] == "completed"
        return text

    assert set(await asyncio.gather(*map(one, range(20)))) == {NUMBERS}
    dropped = (deaf.webs[0].data / "dropped").read_text().split()
    assert "event" in dropped


async def test_stop_arrives_though_hints_get_lost(deaf: Cluster):
    program, other = Program(deaf.webs[1]), Program(deaf.webs[2])
    asking = [
        program.create_turn(await program.conversation(), "/slow 60 /echo never")
        for _ in range(10)
    ]
    turns = await asyncio.gather(*asking)

    async def is_begun() -> bool:
        rows = [await program.turn(turn) for turn in turns]
        return all(row["started_at"] for row in rows)

    await until(is_begun)
    await asyncio.gather(*map(other.cancel, turns))
    for turn in turns:
        assert (await whole(program, turn)).text == ""
        assert (await other.turn(turn))["status"] == "cancelled"
