"""One turn that ends each worker that runs it: the others come to their ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from project import settings
from tests.integration.clients import Program
from tests.integration.crashes import SETTINGS
from tests.integration.suspects import DEADLY, assert_innocent, crashed_until_over
from tests.scaled import Cluster, migrated

pytestmark = [pytest.mark.scaled, pytest.mark.timeout(600)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with migrated(tmp_path / "template") as template:
        cluster = Cluster(tmp_path, template, webs=1, workers=2, **SETTINGS)
        try:
            yield cluster.start()
        finally:
            cluster.end()


async def test_a_turn_that_ends_its_workers_fails_and_the_others_do_not(
    cluster: Cluster,
):
    program = Program(cluster.webs[0])
    case = await crashed_until_over(program, cluster.workers, DEADLY)
    culprit = await program.turn(case.culprit)
    assert culprit["status"] == "failed"
    assert culprit["error"]["code"] == "E_TURN_INTERRUPTED"
    await assert_innocent(program, case)
    # Once as it came to its call, which counts as a step, and then as often as it may.
    assert case.crashes == 1 + settings.TURN_MAX_CLAIMS
