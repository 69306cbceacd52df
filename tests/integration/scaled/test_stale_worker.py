"""A worker that continues after another took over its turns changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.clients import Program, Screen
from tests.integration.following import assert_nothing_twice, read, whole
from tests.integration.stopping import MODEL, SETTINGS, calls, noted, teach, until
from tests.integration.upstream import Upstream, counted
from tests.scaled import REDIS, Cluster, migrated
from tests.serving import free_port

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900), pytest.mark.slow]

NUMBER = 400
WISH = f"count to {NUMBER} in 12 s"
RESET = "parley:step.reset"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Its second worker does not run yet."""
    with migrated(tmp_path) as template:
        cluster = Cluster(tmp_path, template, webs=2, workers=2, **SETTINGS)
        try:
            for process in (*cluster.webs, cluster.workers[0]):
                process.start()
            yield cluster
        finally:
            cluster.end()


async def test_writes_of_a_stale_worker_change_nothing(cluster: Cluster):
    port = free_port()
    zombie, other = cluster.workers
    teach(cluster.webs[0], port)
    token = cluster.webs[0].create_token()
    program, beside = (Program(web, token=token) for web in cluster.webs)
    data = cluster.webs[0].data
    async with Upstream(port) as upstream:
        talking, acting, behind = [await program.conversation() for _ in range(3)]
        text = await program.create_turn(talking, WISH, model=MODEL)
        tool = await program.create_turn(acting, "in a blocking tool", model=MODEL)
        later = await program.create_turn(behind, "in a background call", model=MODEL)
        await whole(program, later)
        await noted(data, "started", acting)
        await noted(data, "started", behind)
        screen, shown = Screen(), len(counted(NUMBER // 4))
        await read(program.follow(text), screen, length=shown)

        zombie.pause()
        await asyncio.to_thread(other.start)
        await read(program.follow(text, screen.position), screen, length=shown + 50)
        while RESET not in {event["type"] for event in screen.events}:
            await read(program.follow(text, screen.position), screen, limit=1)
        assert (await whole(beside, tool)).text == "Done."

        async def is_delivered() -> bool:
            return bool((await calls(program, behind))[0]["delivered_in"])

        await until(is_delivered)
        request_count = upstream.request_count
        zombie.go_on()
        await noted(data, "ended", acting)
        await noted(data, "ended", behind)
        await whole(program, text, screen)
        assert upstream.request_count == request_count
    await _assert_one_log(beside, text, screen)
    for conversation in (acting, behind):
        (call,) = await calls(program, conversation)
        assert call["state"] == "unknown"
        assert call["attempts"] == 1
    (messages,) = [
        item
        for turn in await _turns(program, behind)
        for item in turn["items"]
        if "parley:call_id" in item
    ]
    assert "may or may not have taken effect" in str(messages["content"])
    assert "Traceback" not in zombie.log()


async def _assert_one_log(program: Program, turn: str, screen: Screen) -> None:
    late = await whole(program, turn)
    assert late.text == screen.text == counted(NUMBER)
    assert_nothing_twice(screen)
    begun, *_, ended = sorted({int(p.split("-")[0]) for p in screen.positions})
    assert begun == 1 < ended
    assert {int(p.split("-")[0]) for p in late.positions} == {ended}
    with redis.Redis.from_url(REDIS) as known:
        batches = known.xrange(f"parley:turn:{turn}")
    assert {int(entry_id.split(b"-")[0]) for entry_id, _ in batches} == {ended}
    row = await program.turn(turn)
    assert row["status"] == "completed"
    assert row["response"]["output"][-1]["content"][0]["text"] == counted(NUMBER)


async def _turns(program: Program, conversation: str) -> list:
    async with program.http() as http:
        url = f"/api/conversations/{conversation}/turns/"
        return (await http.get(url)).json()["results"]
