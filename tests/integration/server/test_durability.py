"""Turns of one process, interrupted at fixed places: the laws hold in each."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.chaos.cases import (
    FAULTY,
    KILLED,
    QUIET,
    TERMINATED,
    Case,
    Outcomes,
    outcomes,
)
from tests.chaos.deliveries import SETTINGS, Embedded, How
from tests.chaos.provider import ChaosProvider
from tests.serving import ServerProcess, free_port

pytestmark = [pytest.mark.server, pytest.mark.timeout(900), pytest.mark.slow]


async def _of_all(server: ServerProcess) -> Outcomes:
    port = free_port()
    async with ChaosProvider(port) as provider:
        delivery = await asyncio.to_thread(Embedded, server, port)

        async def of(cases: list[Case], how: How) -> Outcomes:
            return await outcomes(cases, delivery, provider, how)

        return {
            **await of([*QUIET, *FAULTY], "term"),
            **await of(KILLED, "kill"),
            **await of(TERMINATED, "term"),
        }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, migrated_data: Path) -> Outcomes:
    """The violations of all cases, which share one server."""
    data = tmp_path_factory.mktemp("durability") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data, SETTINGS).start()
    try:
        return asyncio.run(_of_all(server))
    finally:
        if server.process:
            server.kill()


def _assert_nothing(violations: list[str]) -> None:
    if violations:
        pytest.fail("\n".join(violations), pytrace=False)


@pytest.mark.parametrize("name", [each.name for each in KILLED])
def test_a_crash_costs_nothing(found: Outcomes, name: str):
    _assert_nothing(found[name])


@pytest.mark.parametrize("name", [each.name for each in TERMINATED])
def test_a_stop_in_order_costs_nothing(found: Outcomes, name: str):
    _assert_nothing(found[name])


@pytest.mark.parametrize("name", [each.name for each in FAULTY])
def test_a_provider_that_fails_leaves_nothing_cut_and_called_whole(
    found: Outcomes, name: str
):
    _assert_nothing(found[name])


@pytest.mark.parametrize("name", [each.name for each in QUIET])
def test_a_proof_goes_back_to_its_provider_within_the_turn(found: Outcomes, name: str):
    _assert_nothing(found[name])
