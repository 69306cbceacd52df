"""Charge an access token for provider calls: reserve before each, settle after it.

A `Meter` wraps the stream between the tool loop and `llm.policy`. A token with neither
a budget nor a token rate limit has no meter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from conversations import ledger, limits
from conversations.admission import owner_of
from conversations.engine.database import Database
from conversations.history import BYTES_A_TOKEN, estimate
from conversations.limits import Wanted
from conversations.loop import Stream
from conversations.token_errors import PriceUnknown
from conversations.tokens import AccessToken
from llm.adapt import heard
from llm.capabilities import Capabilities
from llm.client import Call
from llm.models import MAX_COST
from llm.policy import calls_made
from llm.provider import Route
from llm.result import cost_of
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    StartDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.request import Request

logger = logging.getLogger(__name__)

#: Tokens of an answer where the caller sets no limit.
MOST_OUTPUT = 16_384
#: Factor by which a prompt may be longer than our estimate.
CAUTION = 2


class Meter:
    """Meter of one answer. `database` must be set before use."""

    database: Database

    def __init__(self, token: AccessToken, route: Route, *, taken: int = 0) -> None:
        """`taken`: tokens already charged to the rate limit on admission."""
        self._token = token
        self._taken = taken
        can = Capabilities.read(route.capabilities)
        self._longest = min(MOST_OUTPUT, can.max_output_tokens or MOST_OUTPUT)
        self._entries: list[tuple[str, int]] = []  # id and reserved amount

    @classmethod
    def of(
        cls, token: AccessToken | None, route: Route, *, taken: int = 0
    ) -> Meter | None:
        if token is None:
            return None
        if token.budget is None and not token.tokens_per_minute:
            return None
        return cls(token, route, taken=taken)

    async def admit(self, request: Request, route: Route) -> None:
        """Reserve the maximum cost; called before each request to a provider.

        Raises BudgetExhausted, PriceUnknown, Unauthorized.
        """
        if self._token.budget is None:
            return
        amount = most(request, route)
        if amount is None:
            raise PriceUnknown(
                f"Nobody knows what the model {route.name!r} costs, so a token with a"
                " budget may not ask it; the staff can enter its prices."
            )
        entry = ledger.entry_id()
        self._entries.append((entry, amount))
        # All writes go through one thread, so that the entry is settled after it is
        # reserved, even if this coroutine is cancelled here.
        await self.database.write(ledger.reserve, entry, self._token.pk, amount)

    def counting(self, stream: Stream) -> Stream:
        """`stream`, with its calls settled when it ends, in whatever way it ends."""

        async def counted(
            request: Request, call: Call
        ) -> AsyncGenerator[list[Delta], None]:
            self._entries = []
            request = self._limited(request)
            said = _Said()
            try:
                async with aclosing(stream(request, call)) as batches:
                    async for deltas in batches:
                        said.hear(deltas)
                        yield deltas
            finally:
                self._settle(request, call, said)

        return counted

    def _limited(self, request: Request) -> Request:
        """With a budget every request has an output limit, so that its cost has one."""
        if self._token.budget is None or request.max_output_tokens is not None:
            return request
        return replace(request, max_output_tokens=self._longest)

    def _settle(self, request: Request, call: Call, said: _Said) -> None:
        made = [c for c in said.calls(call) if c.started_at]
        whole = [_with_usage(each, request, said) for each in made]
        costs = [_cost(each) for each in whole]
        for number, (entry, amount) in enumerate(self._entries):
            cost = costs[number] if number < len(costs) else 0
            paid = amount if cost is None else cost
            self._later(self.database.write(ledger.settle, entry, paid))
        if limit := self._token.tokens_per_minute:
            used = sum(map(_tokens, whole)) - self._taken
            self._taken = 0
            wanted = Wanted("tokens", limit, used)
            owner = owner_of(self._token)
            if settings.REDIS_URL:
                self._later(self.database.read(limits.charge, owner, wanted))
            else:
                limits.charge(owner, wanted)

    def _later(self, write: Awaitable[Any]) -> None:
        asyncio.ensure_future(write).add_done_callback(_retrieve)


@dataclass(slots=True)
class _Said:
    """Usage and size of the streamed deltas, for providers that report no usage."""

    start: StartDelta | None = None
    usage: UsageDelta | None = None
    finish: FinishDelta | None = None
    size: int = 0  # bytes

    def hear(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            match delta:
                case StartDelta():
                    self.start = delta
                case UsageDelta():
                    self.usage = heard(self.usage, delta)
                case FinishDelta():
                    self.finish = delta
                case ToolCallDelta():
                    self.size += len(delta.arguments.encode(errors="replace"))
                case _:
                    text: str = getattr(delta, "text", "")
                    self.size += len(text.encode(errors="replace"))

    def calls(self, call: Call) -> list[Call]:
        return calls_made(
            call,
            start=self.start or StartDelta(),
            usage=self.usage or UsageDelta(),
            finish=self.finish,
        )


def most(request: Request, route: Route) -> int | None:
    """The maximum cost of a request in billionths of a USD; None without prices.

    Assumes the estimated prompt times a safety factor, and the longest answer allowed.
    """
    tokens = CAUTION * estimate(request.instructions, request.items, request.tools)
    answer = request.max_output_tokens or MOST_OUTPUT
    plain = UsageDelta(tokens, answer)
    # Writing a prompt to the provider's cache costs more than not caching it.
    cached = UsageDelta(tokens, answer, cache_write_tokens=tokens)
    costs = [cost_of(Call(usage=usage), route) for usage in (plain, cached)]
    known = [cost for cost in costs if cost is not None]
    return ledger.nanos(max(known)) if known else None


def _with_usage(call: Call, request: Request, said: _Said) -> Call:
    """`call`, with our estimate for the usage that its provider did not report.

    After a cut-off stream the reported usage is too low, or missing.
    """
    usage = call.usage or UsageDelta()
    if call.error is not None and (call.http_status or 0) >= 400:
        return replace(call, usage=UsageDelta(0, 0))  # rejected, and not billed
    if call.error is not None and call.http_status is None:
        return replace(call, usage=UsageDelta(0, 0))  # never reached the provider
    told = said.size // BYTES_A_TOKEN
    answer = usage.output_tokens
    if answer is None or call.finish is None:
        answer = max(answer or 0, told)
    prompt = usage.input_tokens
    if prompt is None:
        prompt = estimate(request.instructions, request.items, request.tools)
    return replace(
        call, usage=replace(usage, input_tokens=prompt, output_tokens=answer)
    )


def _cost(call: Call) -> int | None:
    """Billionths of a USD."""
    assert call.route is not None, "llm.policy says whom it asks"
    cost = cost_of(call, call.route)
    # An impossible cost comes from wrong data and is not charged.
    return None if cost is None or cost >= MAX_COST else ledger.nanos(cost)


def _tokens(call: Call) -> int:
    usage = call.usage or UsageDelta()
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _retrieve(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (exc := done.exception()):
        # The sweep releases the reservation after its deadline.
        logger.error("a call could not be settled: %s", type(exc).__name__)
