"""A limit of use admits its amount, by all entry points together, crashes included."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.limited import Limited, admitted
from tests.serving import ServerProcess

pytestmark = pytest.mark.slow


async def test_requests_at_once_are_admitted_up_to_the_limit(server: ServerProcess):
    limited = Limited([server])
    await limited.set_limit(10)
    statuses = await limited.ask(200)
    assert admitted(statuses) == 10
    server.restart()
    assert admitted(await limited.ask(8)) == 0


async def test_a_crash_admits_nothing_more(server: ServerProcess):
    limited = Limited([server])
    await limited.set_limit(10)
    before = admitted(await limited.ask(4))
    asking = asyncio.create_task(limited.ask(40))
    await asyncio.sleep(0)
    server.kill()
    cut = admitted(await asking)
    server.start()
    assert before + cut + admitted(await limited.ask(40)) <= 10
