"""A limit of use over several processes: no more than its amount, crashes included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.limited import Limited, admitted
from tests.scaled import Cluster, migrated

pytestmark = [pytest.mark.scaled, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with migrated(tmp_path) as template:
        found = Cluster(tmp_path, template, webs=2, workers=1)
        try:
            yield found.start()
        finally:
            found.end()


async def test_processes_admit_a_limit_together(cluster: Cluster):
    limited = Limited(cluster.webs)
    await limited.set_limit(10)
    first = admitted(await limited.ask(100))
    assert first <= 10
    cluster.webs[1].kill()
    second = admitted(await limited.ask(100))
    cluster.webs[1].start()
    third = admitted(await limited.ask(100))
    assert 1 <= first + second + third <= 10
