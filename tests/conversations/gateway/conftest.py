from __future__ import annotations

import pytest

from tests.conversations.gateway.programs import Gateway
from tests.serving import ServerProcess


@pytest.fixture(scope="session")
def gateway(shared_server: ServerProcess) -> Gateway:
    return Gateway(shared_server)
