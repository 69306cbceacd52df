"""What an answer costs its token, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from conversations.access import budget, rate_limits
from conversations.access.admission import token_bucket_owner
from conversations.access.errors import BudgetExhausted, PriceUnknown
from conversations.access.rate_limits import Charge
from conversations.engine.database.executor import Database
from conversations.engine.metering import DEFAULT_MAX_OUTPUT, Meter, max_cost
from conversations.models import AccessToken
from conversations.models.ledger import LedgerEntry
from llm.capabilities import Capabilities
from llm.errors import LLMError, ProviderDown, ProviderTimeout
from llm.generation import retries
from llm.generation.retry_policy import Policy
from llm.http.client import ProviderCall
from llm.models import ModelCall
from llm.provider import Endpoint, Provider, Route
from llm.wire.deltas import Delta, FinishDelta, StartDelta, TextDelta, UsageDelta
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.conversations.script import HANG, Script

pytestmark = pytest.mark.django_db(transaction=True)

PRICES = {"input": 1, "output": 1}  # USD per million: a thousand nanos a token
ANSWER = [
    StartDelta("r", "m"),
    TextDelta(0, "Hello there."),
    UsageDelta(10, 20),
    FinishDelta("stop"),
]
REQUEST = Request(model="m", items=[user_message("x" * 400)], max_output_tokens=100)
PROMPT = 104  # tokens, estimated
MOST = 2 * PROMPT + 100  # tokens: the prompt's estimate twice, and the longest answer


def a_route(**fields: Any) -> Route:
    codec: Any = SimpleNamespace(name="none", decoder=lambda: None)
    host = Provider(
        name="scripted",
        label="Scripted",
        base_url="https://m.test/v1",
        codecs={"none": codec},
    )
    route_fields = {"prices": PRICES, "model_id": 1, **fields}
    return Route(
        endpoint=Endpoint(provider=host, codec=codec),
        model="m",
        name="m",
        **route_fields,
    )


@sync_to_async
def a_token(**fields: Any) -> AccessToken:
    user, _ = User.objects.get_or_create(username="ada")
    token, _ = AccessToken.issue(user, "test", **fields)
    return token


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    database = Database()
    yield database
    await database.close()


class Asking:
    """A token's calls of a provider with scripted answers."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        database: Database,
        token: AccessToken,
        *calls: Any,
        route: Route | None = None,
        attempts: int = 1,
        taken: int = 0,
    ) -> None:
        self.script = Script(*calls)

        async def stream(
            endpoint: Any, request: Any, call: Any, *, decoder: Any
        ) -> AsyncGenerator[list[Delta], None]:
            if not isinstance(self.script.calls[0][0], LLMError):
                call.prompt_tokens = PROMPT
            answer = self.script(endpoint, request, call)
            async with aclosing(answer) as batches:
                async for deltas in batches:
                    call.note_deltas(deltas)
                    yield deltas

        monkeypatch.setattr("llm.http.client.stream", stream)
        self.token, self.database = token, database
        self.route = route or a_route()
        self.policy = Policy(attempts=attempts, delay=0)
        self.meter = Meter.of(token, self.route, taken=taken)
        assert self.meter
        self.meter.database = database

    async def __call__(self, *, hang_up_after: int | None = None) -> None:
        """Raises LLMError."""
        meter, call = self.meter, ProviderCall()
        assert meter

        def stream(request: Request, call: ProviderCall) -> Any:
            return retries.stream(
                [self.route], request, call, policy=self.policy, admit=meter.admit
            )

        try:
            async with aclosing(meter.meter_stream(stream)(REQUEST, call)) as batches:
                count = 0
                async for _ in batches:
                    count += 1
                    if count == hang_up_after:
                        return
        finally:
            # Settled behind our back, by the thread that writes.
            await self.database.write(lambda: None)

    async def standing(self) -> tuple[int, int]:
        return await self.database.write(budget.balance_of, self.token)


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch, database: Database) -> Any:
    def make(token: AccessToken, *calls: Any, **fields: Any) -> Asking:
        return Asking(monkeypatch, database, token, *calls, **fields)

    return make


def test_a_token_without_limits_has_no_meter():
    assert Meter.of(None, a_route()) is None
    assert Meter.of(AccessToken(requests_per_minute=5), a_route()) is None


async def test_a_call_is_paid_for_as_its_provider_counted(asking: Any):
    send = asking(await a_token(budget=Decimal(1)), ANSWER)
    await send()
    assert await send.standing() == (30_000, 0)
    row = await LedgerEntry.objects.aget()
    assert (row.amount, row.cost) == (MOST * 1000, 30_000)


async def test_a_call_that_could_cost_more_than_is_left_is_never_made(asking: Any):
    send = asking(await a_token(budget=Decimal(MOST * 1000 - 1000) / 10**9), ANSWER)
    with pytest.raises(BudgetExhausted):
        await send()
    assert send.script.requests == []
    assert await send.standing() == (0, 0)


async def test_a_model_without_a_known_price_is_refused_too(asking: Any):
    token = await a_token(budget=Decimal(1))
    send = asking(token, ANSWER, route=a_route(prices={}))
    with pytest.raises(PriceUnknown, match="price of the model 'm' is unknown"):
        await send()
    assert send.script.requests == []


async def test_each_attempt_is_reserved_and_settled_by_itself(asking: Any):
    down = ProviderDown()
    send = asking(
        await a_token(budget=Decimal(1)), [UsageDelta(5, 0), down], ANSWER, attempts=2
    )
    await send()
    spent, reserved = await send.standing()
    assert reserved == 0
    costs = [row.cost async for row in LedgerEntry.objects.order_by("created_at")]
    assert len(costs) == 2
    assert spent == sum(costs)
    assert 30_000 in costs


async def test_a_caller_that_disconnects_pays_for_the_text_so_far(asking: Any):
    deltas = [StartDelta("r", "m"), TextDelta(0, "y" * 80)]
    send = asking(await a_token(budget=Decimal(1)), [deltas, HANG])
    await send(hang_up_after=1)
    spent, reserved = await send.standing()
    assert reserved == 0
    assert spent == (104 + 20) * 1000  # our estimate of prompt and answer


async def test_a_call_that_timed_out_is_paid_for_as_its_row_says(
    asking: Any, monkeypatch: pytest.MonkeyPatch
):
    """The host may still be at work on it."""
    send = asking(await a_token(budget=Decimal(1)))
    call = ProviderCall(started_at=1.0, prompt_tokens=50, error=ProviderTimeout())

    async def stream(
        endpoint: Any, request: Any, made: ProviderCall, *, decoder: Any
    ) -> AsyncGenerator[list[Delta], None]:
        made.started_at, made.prompt_tokens = call.started_at, call.prompt_tokens
        made.error = ProviderTimeout()
        raise made.error
        yield

    monkeypatch.setattr("llm.http.client.stream", stream)
    with pytest.raises(ProviderTimeout):
        await send()
    row = ModelCall.of(call, send.route)
    assert (row.input_tokens, row.output_tokens, row.is_estimated) == (50, 0, True)
    assert row.cost is not None
    assert await send.standing() == (budget.nanos(row.cost), 0)


async def test_a_call_cancelled_while_waiting_leaves_no_reservation(asking: Any):
    send = asking(await a_token(budget=Decimal(1)), [HANG])
    task = asyncio.ensure_future(send())
    while not send.script.requests:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await send.database.write(lambda: None)
    spent, reserved = await send.standing()
    assert (spent, reserved) == (104_000, 0)


async def test_a_call_cancelled_while_reserving_leaves_no_reservation(asking: Any):
    send = asking(await a_token(budget=Decimal(1)), ANSWER)
    task = asyncio.ensure_future(send())
    while not send.meter.reservations:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await send.database.write(lambda: None)
    assert await send.standing() == (0, 0)


async def test_a_refused_call_costs_nothing(asking: Any):
    refused = LLMError()
    send = asking(await a_token(budget=Decimal(1)), [refused])
    with pytest.raises(LLMError):
        await send()
    assert await send.standing() == (0, 0)


async def test_an_answer_of_a_budget_has_an_end(asking: Any, database: Database):
    token = await a_token(budget=Decimal(1))
    for route, longest in (
        (a_route(), DEFAULT_MAX_OUTPUT),
        (a_route(capabilities=Capabilities(max_output_tokens=300)), 300),
    ):
        meter = Meter.of(token, route)
        assert meter
        limited = meter.limit_output(Request(model="m", items=[]))
        assert limited.max_output_tokens == longest
        assert meter.limit_output(REQUEST).max_output_tokens == 100


def test_the_most_a_call_may_cost_knows_that_writing_a_cache_costs_more():
    dear = {**PRICES, "cache_write": 5}
    plain, cached = (max_cost(REQUEST, a_route(prices=p)) for p in (PRICES, dear))
    assert plain is not None
    assert cached == plain + 208 * 4000


@pytest.mark.parametrize(
    ("request_", "factor"),
    [
        (REQUEST, 1),
        (replace(REQUEST, service_tier="default"), 1),
        (replace(REQUEST, service_tier="priority"), 2),
        (replace(REQUEST, service_tier="fast"), 2),  # OpenAI's other name
        (replace(REQUEST, service_tier="flex"), 1),  # the answer may have another
        (replace(REQUEST, service_tier="unpriced"), 1),
    ],
)
def test_the_most_a_call_may_cost_is_that_of_its_tier(request_: Request, factor: int):
    route = a_route(prices={**PRICES, "tiers": {"priority": 2, "flex": 0.5}})
    usual = max_cost(REQUEST, route)
    assert usual is not None
    assert max_cost(request_, route) == usual * factor
    by_default = replace(route, defaults={"service_tier": "priority"})
    assert max_cost(REQUEST, by_default) == usual * 2


# Tokens a minute


def left_of(token: AccessToken, limit: int) -> float:
    look = [Charge("tokens", limit, 0, is_taken=False)]
    return rate_limits.take(token_bucket_owner(token), look).buckets[0].level


async def test_tokens_are_counted_as_they_were_used(asking: Any):
    token = await a_token(tokens_per_minute=1000)
    rate_limits.take(
        token_bucket_owner(token), [Charge("tokens", 1000, 104)]
    )  # the endpoint's estimate
    send = asking(token, ANSWER, taken=104)
    await send()
    assert left_of(token, 1000) == pytest.approx(970, abs=20)
    await send()  # the next step of the same answer, which no endpoint has estimated
    assert left_of(token, 1000) == pytest.approx(940, abs=40)
    assert not await LedgerEntry.objects.aexists()
