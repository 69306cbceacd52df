"""Storms over several processes, with a PostgreSQL and a Redis of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis

from tests.integration.clients import Program, Screen, sign_in
from tests.integration.following import EntryPoint
from tests.integration.server.test_storms import blocked
from tests.integration.standing_still import TEXT, stand_still
from tests.integration.stopping import SETTINGS, teach, until
from tests.integration.storms import Grows, weather
from tests.integration.upstream import Upstream
from tests.programs import need_program
from tests.scaled import Cluster, PostgresProcess, RedisProcess, migrated
from tests.serving import free_port

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900), pytest.mark.slow]


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
    async def restart(grow: Grows) -> None:
        await asyncio.to_thread(hints.kill)
        await grow()
        await asyncio.to_thread(hints.start)

    await weather(programs, restart)


async def test_postgresql_crashes_and_is_started_again(
    programs: list[Program], postgres: PostgresProcess
):
    async def restart(grow: Grows) -> None:
        await asyncio.to_thread(postgres.crash)
        await grow()
        await asyncio.to_thread(postgres.start)

    await weather(programs, restart)


async def test_all_subscriptions_are_cut_again_and_again(
    cluster: Cluster, programs: list[Program], hints: RedisProcess
):
    processes = len(cluster.webs) + len(cluster.workers)

    async def cut_all(grow: Grows) -> None:
        with redis.Redis.from_url(hints.url) as known:

            async def all_subscribe() -> bool:
                return len(known.client_list(_type="pubsub")) >= processes

            for _ in range(5):
                await until(all_subscribe)
                assert known.client_kill_filter(_type="pubsub") >= processes

    await weather(programs, cut_all)


async def test_the_event_loop_of_a_web_process_is_blocked(
    cluster: Cluster, programs: list[Program]
):
    await weather(programs, lambda _: blocked([cluster.webs[2]]))


async def test_the_event_loop_of_a_worker_is_blocked_past_its_leases(
    cluster: Cluster, programs: list[Program]
):
    await weather(programs, lambda _: blocked([cluster.workers[0]]))


@pytest.mark.parametrize("share", [0.7, 1.0], ids=["in the middle", "when all is over"])
async def test_a_web_process_that_was_stopped_goes_on_where_it_was(
    cluster: Cluster, upstream_port: int, share: float
):
    _, stopped, other = cluster.webs
    token, cookie = stopped.create_token(), await sign_in(stopped, "admin")
    doors = [EntryPoint(stopped, token), EntryPoint(stopped, token, cookie)]

    async def has_read_share(left: Screen) -> bool:
        return left.over if share == 1.0 else len(left.text) > share * len(TEXT)

    async with Upstream(upstream_port):
        elsewhere = Program(other, token=token)
        await stand_still(stopped, doors, elsewhere, has_read_share)
