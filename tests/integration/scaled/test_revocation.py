"""A removed participant's pages and streams end in every process, over a real Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.clients import Program
from tests.integration.guests import Guest, closed, remove, revoke_unannounced
from tests.scaled import Cluster, migrated

pytestmark = [pytest.mark.scaled, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("revocation")
    with migrated(folder / "template") as template:
        cluster = Cluster(folder, template, webs=2, workers=1)
        try:
            yield cluster.start()
        finally:
            cluster.end()


@pytest.fixture(scope="module")
def owner(cluster: Cluster) -> Program:
    return Program(cluster.webs[0])


@pytest.fixture(scope="module")
def guest(cluster: Cluster) -> Guest:
    return Guest(cluster.webs[0], "bob")


async def test_pages_end_in_all_processes_and_others_stay(
    cluster: Cluster, owner: Program, guest: Guest
):
    conversation, other = await owner.conversation(), await owner.conversation()
    pk = await guest.join(owner, conversation, "writer")
    await guest.join(owner, other, "viewer")
    async with (
        guest.pages(cluster.webs, conversation) as pages,
        guest.pages(cluster.webs[1:], other) as elsewhere,
    ):
        await remove(owner, pk)
        assert [code for code, _ in [await closed(page) for page in pages]] == [
            4404
        ] * 2
        await elsewhere[0].send(json.dumps({"type": "ping"}))
        assert json.loads(await elsewhere[0].recv())["type"] == "parley:pong"


async def test_nothing_that_is_said_after_the_removal_is_heard(
    cluster: Cluster, owner: Program, guest: Guest
):
    conversation = await owner.conversation()
    pk = await guest.join(owner, conversation, "viewer")
    async with guest.pages(cluster.webs[1:], conversation) as (page,):
        turn = await owner.create_turn(conversation, "/long 4000")
        await page.send(json.dumps({"type": "turn.follow", "turn": turn}))
        async for text in page:
            if "delta" in json.loads(text)["type"]:
                break
        there, begun = Program(cluster.webs[1], token=guest.token), asyncio.Event()
        stream = asyncio.ensure_future(_types(there, turn, begun))
        await begun.wait()
        await remove(owner, pk)
        heard = []
        with suppress(ConnectionClosed):
            async for text in page:
                heard.append(json.loads(text)["type"])
        assert (await closed(page))[0] == 4404
        assert "response.completed" not in [*heard, *await stream]
    row = await owner.turn(turn)
    assert row["status"] == "in_progress"  # for its owner it goes on
    await owner.cancel(turn)


async def test_a_lost_notification_is_made_up_for(
    cluster: Cluster, owner: Program, guest: Guest
):
    conversation = await owner.conversation()
    pk = await guest.join(owner, conversation, "approver")
    async with guest.pages(cluster.webs, conversation) as pages:
        await asyncio.to_thread(revoke_unannounced, cluster.webs[0], pk)
        assert [code for code, _ in [await closed(page) for page in pages]] == [
            4404
        ] * 2


async def _types(program: Program, turn: str, begun: asyncio.Event) -> list[str]:
    """Of the events of a stream, until it ends."""
    types = []
    async for _, event in program.follow(turn):
        types.append(event["type"])
        begun.set()
    return types
