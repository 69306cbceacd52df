"""Clients of the gateway, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from project.server.application import application
from tests.conversations.gateway.forwarding.hosts import Client


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = await Client().open()
    yield client
    await client.close()


@pytest.fixture
async def http(client: Client) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(application)) as http:
        yield http
