"""Turns of several processes whose workers are all killed at fixed places."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.cases import KILLED, Outcomes, outcomes
from tests.chaos.deliveries import SETTINGS, Scaled
from tests.chaos.provider import ChaosProvider
from tests.scaled import Cluster, migrated
from tests.serving import free_port

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(900), pytest.mark.slow]


async def _of_all(cluster: Cluster) -> Outcomes:
    port = free_port()
    async with ChaosProvider(port) as provider:
        delivery = await asyncio.to_thread(Scaled, cluster, port)
        return await outcomes(KILLED, delivery, provider, "kill")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    folder = tmp_path_factory.mktemp("killed")
    with migrated(folder / "template") as template:
        cluster = Cluster(folder, template, webs=1, workers=2, **SETTINGS)
        try:
            return asyncio.run(_of_all(cluster.start()))
        finally:
            cluster.end()


@pytest.mark.parametrize("name", [each.name for each in KILLED])
def test_a_crash_of_all_workers_costs_nothing(killed: Outcomes, name: str):
    if violations := killed[name]:
        pytest.fail("\n".join(violations), pytrace=False)
