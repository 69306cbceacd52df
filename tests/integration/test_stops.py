"""Stop while results make the model call again and again: in both deliveries nothing
begins after it, and all that runs is ended."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.chaos.deliveries import SETTINGS, Delivery, Embedded, Scaled, open_gate
from tests.chaos.offered import model_of
from tests.chaos.provider import ChaosProvider
from tests.chaos.scenarios import ENDLESS
from tests.chaos.stops import fetch_all, problems
from tests.chaos.wish import Wish
from tests.integration.following import whole
from tests.scaled import Cluster, migrated
from tests.serving import ServerProcess, free_port

PATIENCE = 120  # seconds


def wish_of(wire: str) -> Wish:
    """Request 4 stays open; each call waits for a gate of its own."""
    return Wish(id=f"stop{wire}", scenario=ENDLESS, hold={"4": 50}, work=-1)


async def assert_stopped(
    delivery: Delivery, provider: ChaosProvider, wire: str
) -> None:
    """Stop is sent to a process other than the turn's, if there is another."""
    wish, ledger = wish_of(wire), provider.ledger
    asking, stopping = delivery.programs[0], delivery.programs[-1]
    conversation = await asking.conversation()
    model = model_of(wire, "")
    root = await asking.create_turn(conversation, wish.text(), model=model)
    await whole(asking, root)
    open_gate(delivery, wish, f"{wish.id}_a1_0")
    held_request = await ledger.wait_for_hold(wish, 4)

    await stopping.cancel(root)
    await ledger.wait_until(lambda: held_request.closed_at is not None)
    caused = (await fetch_all(asking, conversation, "turns"))[-1]["id"]
    await whole(asking, caused)
    while (await _states(delivery, conversation))[-1] == "executing":
        await asyncio.sleep(0.05)  # another process: no event to wait for
    open_gate(delivery, wish)  # a result that comes now starts no turn

    after = Wish(id=f"after{wire}", scenario="plain")
    last = await stopping.create_turn(conversation, after.text(), model=model)
    await whole(stopping, last)
    turns = await fetch_all(asking, conversation, "turns")
    calls = await fetch_all(asking, conversation, "tool-calls")
    statuses = {turn["id"]: turn["status"] for turn in turns}
    assert statuses == {root: "completed", caused: "cancelled", last: "completed"}
    assert [call["state"] for call in calls] == ["completed", "cancelled"]
    assert [len(ledger.of(each)) for each in (wish, after)] == [4, 1]
    assert problems(wish, turns, calls) == []
    assert ledger.problems == []


async def _states(delivery: Delivery, conversation: str) -> list[str]:
    calls = await fetch_all(delivery.programs[0], conversation, "tool-calls")
    return [call["state"] for call in calls]


@pytest.mark.server
@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_stop_ends_all_that_a_message_causes(tmp_path: Path, migrated_data: Path):
    data, port = tmp_path / "data", free_port()
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data, SETTINGS).start()
    try:
        delivery = await asyncio.to_thread(Embedded, server, port)
        async with ChaosProvider(port) as provider, asyncio.timeout(PATIENCE):
            for wire in ("chat", "anthropic"):
                await assert_stopped(delivery, provider, wire)
    finally:
        server.kill()


@pytest.mark.scaled
@pytest.mark.timeout(600)
async def test_stop_at_another_process_ends_all_that_a_message_causes(tmp_path: Path):
    port = free_port()
    with migrated(tmp_path / "template") as template:
        cluster = Cluster(tmp_path, template, webs=2, workers=2, **SETTINGS)
        try:
            await asyncio.to_thread(cluster.start)
            delivery = await asyncio.to_thread(Scaled, cluster, port)
            async with ChaosProvider(port) as provider, asyncio.timeout(PATIENCE):
                for wire in ("chat", "anthropic"):
                    await assert_stopped(delivery, provider, wire)
        finally:
            await asyncio.to_thread(cluster.end)
