"""How a gateway process names the one with the engine."""

from __future__ import annotations

from typing import Any

import pytest

from project.environment.address import Address
from project.server.gateway_processes.child import name_for_clients


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("parley.lan", "http://parley.lan:8000"),
        ("8.8.8.8", "http://8.8.8.8:8000"),
        ("0.0.0.0", "port 8000 of this server"),
        ("::", "port 8000 of this server"),
        ("10.0.0.5", "port 8000 of this server"),
    ],
)
def test_clients_learn_an_address_that_they_may_use(
    settings: Any, host: str, name: str
):
    settings.PUBLIC_URL = ""
    assert name_for_clients(Address(host, 8000)) == name
    settings.PUBLIC_URL = "https://parley.example"
    assert name_for_clients(Address(host, 8000)) == "https://parley.example"
