"""A Redis that answers and refuses writes: subscribers are served from rows."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis as redis_client

from tests.integration.clients import Program, Screen
from tests.integration.following import assert_nothing_twice, read, whole
from tests.integration.stopping import MODEL, SETTINGS, teach
from tests.integration.upstream import Upstream, counted
from tests.programs import need_program
from tests.scaled import Cluster, RedisProcess, migrated
from tests.serving import free_port

pytestmark = [pytest.mark.scaled, pytest.mark.slow]

COUNT, SECONDS = 240, 12
Client = redis_client.Redis


def _fill(client: Client, folder: Path) -> None:
    client.config_set("maxmemory", 1)


def _empty(client: Client, folder: Path) -> None:
    client.config_set("maxmemory", 0)


def _demote(client: Client, folder: Path) -> None:
    client.replicaof("127.0.0.1", free_port())


def _promote(client: Client, folder: Path) -> None:
    client.replicaof("no", "one")


def _break_saving(client: Client, folder: Path) -> None:
    client.config_set("save", "1 1")
    shutil.rmtree(folder)
    with suppress(redis_client.ResponseError):
        client.bgsave()
    while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
        pass


def _mend_saving(client: Client, folder: Path) -> None:
    client.config_set("stop-writes-on-bgsave-error", "no")


@dataclass(frozen=True)
class Refusal:
    begin: Callable[[Client, Path], None]
    end: Callable[[Client, Path], None]


REFUSALS = {
    "OOM": Refusal(_fill, _empty),
    "READONLY": Refusal(_demote, _promote),
    "MISCONF": Refusal(_break_saving, _mend_saving),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with migrated(tmp_path_factory.mktemp("template")) as name:
        yield name


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisProcess]:
    need_program("redis-server")
    folder = tmp_path / "redis"
    folder.mkdir()
    process = RedisProcess(folder).start()
    yield process
    process.kill()


@pytest.fixture
def cluster(tmp_path: Path, template: str, redis: RedisProcess) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, template, webs=1, workers=1, redis=redis.url)
    try:
        yield cluster.start()
    finally:
        cluster.end()


@pytest.mark.parametrize("name", REFUSALS)
async def test_rows_stand_in_for_a_log_that_takes_no_writes(
    cluster: Cluster, redis: RedisProcess, tmp_path: Path, name: str
):
    refusal, port = REFUSALS[name], free_port()
    teach(cluster.webs[0], port)
    program, screen = Program(cluster.webs[0]), Screen()
    with redis_client.Redis(port=redis.port) as client:
        async with Upstream(port) as upstream:
            conversation = await program.conversation()
            wish = f"count to {COUNT} in {SECONDS} s"
            turn = await program.create_turn(conversation, wish, model=MODEL)
            await read(program.follow(turn), screen, length=20)
            refusal.begin(client, tmp_path / "redis")
            with pytest.raises(redis_client.ResponseError):
                client.set("x", "y")
            while (shown := screen.text) == "" or len(shown) < 250:
                await read(program.follow(turn, screen.position), screen, limit=2)
            assert upstream.counted_to(wish) < COUNT, "the rows came while it ran"
            refusal.end(client, tmp_path / "redis")
            late = await whole(program, turn)
            await whole(program, turn, screen)
    assert screen.text == late.text == counted(COUNT)
    assert "parley:step.reset" not in {event["type"] for event in screen.events}
    assert_nothing_twice(screen)
    lines = [line for line in cluster.log().splitlines() if "Redis" in line]
    assert len([line for line in lines if "events cannot be written" in line]) == 1, (
        lines
    )


@pytest.fixture
def pair(tmp_path: Path, template: str, redis: RedisProcess) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, template, webs=2, workers=1, redis=redis.url)
    try:
        yield cluster.start()
    finally:
        cluster.end()


async def test_rows_are_read_on_in_another_process(pair: Cluster, redis: RedisProcess):
    port = free_port()
    teach(pair.webs[0], port)
    programs, screen = [Program(web) for web in pair.webs], Screen()
    with redis_client.Redis(port=redis.port) as client:
        async with Upstream(port) as upstream:
            conversation = await programs[0].conversation()
            wish = f"count to {COUNT} in {SECONDS} s"
            turn = await programs[0].create_turn(conversation, wish, model=MODEL)
            await read(programs[0].follow(turn), screen, length=20)
            client.config_set("maxmemory", 1)
            for number in range(1, 7):
                more = len(screen.text) + 1
                other = programs[number % 2].follow(turn, screen.position)
                await read(other, screen, length=more)
                assert counted(COUNT).startswith(screen.text)
            assert upstream.counted_to(wish) < COUNT, "all came while it ran"
            client.config_set("maxmemory", 0)
            await whole(programs[1], turn, screen)
    assert screen.text == counted(COUNT)
    assert_nothing_twice(screen)


async def test_a_turn_of_a_log_that_never_takes_writes_is_read_to_its_end(
    cluster: Cluster, redis: RedisProcess
):
    port = free_port()
    teach(cluster.webs[0], port)
    program, screen = Program(cluster.webs[0]), Screen()
    with redis_client.Redis(port=redis.port) as client:
        client.config_set("maxmemory", 1)
        async with Upstream(port):
            conversation = await program.conversation()
            wish = "count to 60 in 6 s"
            turn = await program.create_turn(conversation, wish, model=MODEL)
            await whole(program, turn, screen)
        client.config_set("maxmemory", 0)
    assert screen.text == counted(60)
    assert_nothing_twice(screen)
    deltas = [e for e in screen.events if e["type"] == "response.output_text.delta"]
    assert len(deltas) > 2, "it was told while it ran"


async def show_until(last: str, program: Program, turn: str, screen: Screen):
    """Shows the events until one of the type `last`; returns their types."""
    types: list[str] = []
    async with aclosing(program.follow(turn)) as events:
        async for position, event in events:
            screen.show(position, event)
            types.append(event["type"])
            if types[-1] == last:
                break
    return types


async def test_a_question_to_a_person_is_seen_without_the_log(
    tmp_path: Path, template: str, redis: RedisProcess
):
    cluster = Cluster(
        tmp_path, template, webs=1, workers=1, redis=redis.url, **SETTINGS
    )
    port = free_port()
    try:
        program, screen = Program(cluster.start().webs[0]), Screen()
        teach(cluster.webs[0], port)
        with redis_client.Redis(port=redis.port) as client:
            client.config_set("maxmemory", 1)
            async with Upstream(port):
                conversation = await program.conversation()
                turn = await program.create_turn(
                    conversation, "awaiting approval", model=MODEL
                )
                types = await show_until("parley:turn.waiting", program, turn, screen)
                question = screen.events[types.index("parley:approval.requested")]
                async with program.http() as http:
                    path = f"/api/questions/{question['question']['id']}/answer/"
                    answer = await http.post(path, json={"action": "accept"})
                    assert answer.status_code == 200, answer.text
                await whole(program, turn, screen)
            client.config_set("maxmemory", 0)
    finally:
        cluster.end()
    assert types.count("parley:approval.requested") == 1
    assert_nothing_twice(screen)
