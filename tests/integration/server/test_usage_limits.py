"""A limit of use admits its amount, by all entry points together, crashes included."""

from __future__ import annotations

import asyncio
from decimal import Decimal

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


#: Of both prompt and answer of the demo model, so that a cost is a number of tokens.
PRICES = """
from llm.models import LanguageModel
LanguageModel.objects.update(prices={"input": 100, "output": 100})
"""


@pytest.mark.parametrize(
    ("measure", "amount"), [("tokens", 5_000), ("cost", Decimal(10))]
)
async def test_calls_at_once_take_no_more_than_the_limit(
    server: ServerProcess, measure: str, amount: Decimal
):
    """What each may take is reserved before it calls the model, and settled after."""
    server.manage("shell", "-v0", "-c", PRICES)
    server.restart()
    limited = Limited([server])
    await limited.set_limit(**{measure: amount})
    statuses: list[int] = []
    while 429 not in statuses:
        statuses += await limited.ask(70)
        await limited.wait_for_turns()
        assert await limited.used(measure) <= amount
    assert admitted(statuses) > 0
    assert await limited.used(measure) > 0
