"""Storms over several processes, with a PostgreSQL and a Redis of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from tests.programs import need_program
from tests.scaled import Cluster, PostgresProcess, RedisProcess, migrated
from tests.serving import free_port

from .clients import Program, Screen, sign_in
from .following import Door
from .standing_still import TEXT, stand_still
from .stopping import SETTINGS, teach
from .storms import weather
from .test_storms import blocked
from .upstream import Upstream

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresProcess]:
    process = PostgresProcess()
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture(scope="module")
def hints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    need_program("redis-server")
    process = RedisProcess(tmp_path_factory.mktemp("redis")).start()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: PostgresProcess,
    hints: RedisProcess,
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("storms")
    with migrated(folder, postgres.url) as template:
        cluster = Cluster(
            folder,
            template,
            webs=3,
            workers=2,
            redis=hints.url,
            postgres=postgres.url,
            **SETTINGS,
        )
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.end()


@pytest.fixture(scope="module")
def upstream_port(cluster: Cluster) -> int:
    port = free_port()
    teach(cluster.webs[0], port)
    return port


@pytest.fixture(scope="module")
def programs(cluster: Cluster, upstream_port: int) -> list[Program]:
    token = cluster.webs[0].create_token()
    return [Program(web, token=token) for web in cluster.webs]


async def test_redis_is_restarted(programs: list[Program], hints: RedisProcess):
    async def restart() -> None:
        await asyncio.to_thread(hints.kill)
        await asyncio.sleep(2)
        await asyncio.to_thread(hints.start)

    await weather(programs, restart)


async def test_postgresql_crashes_and_is_started_again(
    programs: list[Program], postgres: PostgresProcess
):
    async def restart() -> None:
        await asyncio.to_thread(postgres.crash)
        await asyncio.sleep(2)
        await asyncio.to_thread(postgres.start)

    await weather(programs, restart)


async def test_all_subscriptions_are_cut_again_and_again(
    cluster: Cluster, programs: list[Program], hints: RedisProcess
):
    cut = []

    async def cut_all() -> None:
        with redis.Redis.from_url(hints.url) as known:
            for _ in range(5):
                cut.append(known.client_kill_filter(_type="pubsub"))
                await asyncio.sleep(0.7)

    await weather(programs, cut_all)
    assert cut[0] >= len(cluster.webs) + len(cluster.workers)


async def test_the_event_loop_of_a_web_process_is_blocked(
    cluster: Cluster, programs: list[Program]
):
    await weather(programs, lambda: blocked([cluster.webs[2]]))


async def test_the_event_loop_of_a_worker_is_blocked_past_its_leases(
    cluster: Cluster, programs: list[Program]
):
    await weather(programs, lambda: blocked([cluster.workers[0]]))


@pytest.mark.parametrize("share", [0.7, 1.0], ids=["in the middle", "when all is over"])
async def test_a_web_process_that_was_stopped_goes_on_where_it_was(
    cluster: Cluster, upstream_port: int, share: float
):
    _, stopped, other = cluster.webs
    token, cookie = stopped.create_token(), await sign_in(stopped, "admin")
    doors = [Door(stopped, token), Door(stopped, token, cookie)]

    async def is_told(left: Screen) -> bool:
        return left.over if share == 1.0 else len(left.text) > share * len(TEXT)

    async with Upstream(upstream_port):
        elsewhere = Program(other, token=token)
        await stand_still(stopped, doors, elsewhere, is_told)
