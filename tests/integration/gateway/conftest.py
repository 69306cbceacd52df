from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.gateway.programs import Gateway
from tests.serving import ServerProcess


@pytest.fixture(scope="session")
def gateway(shared_server: ServerProcess) -> Gateway:
    return Gateway(shared_server)


@pytest.fixture(autouse=True)
def _close_sdks(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "gateway" in request.fixturenames:
        request.getfixturevalue("gateway").close_sdks()
