"""What every run of the tool loop needs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from llm.http import client


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()
