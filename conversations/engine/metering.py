"""Charge access tokens and people for provider calls: reserve before each, settle
after it.

A `Meter` wraps the stream between the tool loop and `llm.generation.retries`. A call
has none if its token has neither a budget nor a token rate limit, and no limit of use
applies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from django.conf import settings

from conversations.access import budget, rate_limits
from conversations.access.admission import token_bucket_owner
from conversations.access.errors import PriceUnknown
from conversations.access.limits import admission as usage_limits
from conversations.access.limits.amounts import Amounts, limits_of_models
from conversations.access.limits.applicable import Applied
from conversations.access.limits.leases import Reservation, leases
from conversations.access.rate_limits import Charge
from conversations.engine.database.executor import Database
from conversations.models.access_token import AccessToken
from conversations.models.ledger import entry_id
from conversations.turns.history import estimate_prompt
from llm.adaptation.adapt import merge_usage
from llm.generation.result import cost_of
from llm.generation.retries import calls_made
from llm.http.client import ProviderCall, Stream
from llm.pricing.answering_model import (
    MAX_COST,
    choices_of,
    cost_of_choice,
    find_model,
)
from llm.pricing.usage_estimate import billed_tokens, estimate_usage
from llm.provider import Route
from llm.wire.deltas import (
    Delta,
    FinishDelta,
    StartDelta,
    UsageDelta,
)
from llm.wire.request import Request
from llm.wire.usage_numbers import OPENAI_ALIASES, name_tier

logger = logging.getLogger(__name__)

#: Tokens of an answer where the caller sets no limit.
DEFAULT_MAX_OUTPUT = 16_384
#: Tokens of an answer that are reserved of a limit where the caller sets no limit.
RESERVED_OUTPUT = 1024
#: Factor by which a prompt may be longer than our estimate.
PROMPT_SAFETY_FACTOR = 2


class Meter:
    """Meter of one answer. `database` must be set before use."""

    database: Database

    def __init__(
        self,
        token: AccessToken | None,
        route: Route,
        limits: Applied = (),
        *,
        taken: int = 0,
        alternatives: Sequence[Route] | None = None,
        notifies: bool = True,
    ) -> None:
        """`limits`: those of use that apply to the caller. `taken`: tokens already
        charged to the rate limit on admission. `alternatives`: models that hosts of the
        call may choose instead; None if they may not choose. `notifies`: send
        webhooks an event of a limit for which a call is refused."""
        self._notifies = notifies
        self._token = token
        self._alternatives = alternatives
        self._limits = limits
        self._taken = taken
        limit = route.capabilities.max_output_tokens or DEFAULT_MAX_OUTPUT
        self._max_output_tokens = min(DEFAULT_MAX_OUTPUT, limit)
        self.reservations: list[tuple[str, int]] = []  # id and reserved amount
        self._limit_reservations: list[Reservation] = []
        #: The entry of a response that an earlier run has requested; "" if there is
        #: none. The call that resumes it is no new cost.
        self.resumed_entry = ""
        self._resuming = False  # the first of `reservations` is that entry
        self._has_budget = token is not None and token.budget is not None
        self._has_cost_limit = _limits_cost(limits)

    @classmethod
    def of(
        cls,
        token: AccessToken | None,
        route: Route,
        limits: Applied = (),
        *,
        taken: int = 0,
        alternatives: Sequence[Route] | None = None,
        notifies: bool = True,
    ) -> Meter | None:
        if not limits and (token is None or not token.is_metered):
            return None
        return cls(
            token,
            route,
            limits,
            taken=taken,
            alternatives=alternatives,
            notifies=notifies,
        )

    async def admit(self, request: Request, route: Route) -> None:
        """Reserve the maximum cost; called before each request to a provider.

        Raises BudgetExhausted, PriceUnknown, Unauthorized, UsageLimitReached.
        """
        limits = self._limits
        choices = self._choices(route)
        if limits:
            limits = limits_of_models(limits, *(each.model_id for each in choices))
        amount = self._max_cost(request, choices, limits)
        if limits:
            await self._reserve_limits(limits, request, amount)
        else:  # `_settle` finds a request's reservation by the request's number
            self._limit_reservations.append(Reservation([]))
        if not self._has_budget:
            return
        assert self._token is not None, "a budget is a token's"
        if request.resumes and self.resumed_entry:
            self.reservations.append((self.resumed_entry, amount))
            self.resumed_entry, self._resuming = "", True
            return
        entry = entry_id()
        self.reservations.append((entry, amount))
        # All writes go through one thread, so that the entry is settled after it is
        # reserved, even if this coroutine is cancelled here.
        await self.database.write(budget.reserve, entry, self._token.pk, amount)

    @property
    def last_entry(self) -> str:
        """The ledger entry of the last request; "" without a budget."""
        return self.reservations[-1][0] if self.reservations else ""

    def _choices(self, route: Route) -> Sequence[Route]:
        """`route`, and the models that its provider may choose instead."""
        return choices_of(route, self._alternatives or ())

    def _max_cost(
        self, request: Request, choices: Sequence[Route], limits: Applied
    ) -> int:
        """Billionths of a USD of the dearest model; 0 where neither budget nor limit
        asks. Raises PriceUnknown."""
        if not self._has_budget and not _limits_cost(limits):
            return 0
        tokens, answer = _longest(request)
        costs = [
            highest_cost(tokens, answer, each, _tier_of(request, each))
            for each in choices
        ]
        if None not in costs:
            return max(cost for cost in costs if cost is not None)
        unknown = choices[costs.index(None)]
        subject = "a token with a budget" if self._has_budget else "a limit of cost"
        verb = "use" if self._has_budget else "allow"
        raise PriceUnknown(
            f"The price of the model {unknown.name!r} is unknown, so {subject} cannot"
            f" {verb} it; ask the staff to enter its prices."
        )

    async def _reserve_limits(
        self, limits: Applied, request: Request, cost: int
    ) -> None:
        """Raises UsageLimitReached."""
        amounts = Amounts(tokens=_max_tokens(request), cost=cost)
        found = leases.try_reserve(limits, amounts)
        if found is None:
            reserve = partial(usage_limits.reserve, notifies=self._notifies)
            enlarging = asyncio.ensure_future(
                self.database.write(reserve, limits, amounts)
            )
            try:
                found = await asyncio.shield(enlarging)
            except asyncio.CancelledError:
                enlarging.add_done_callback(_release_reservation)
                raise
        self._limit_reservations.append(found)

    def meter_stream(self, stream: Stream) -> Stream:
        """`stream`, with its calls settled when it ends, in whatever way it ends."""

        async def stream_and_settle(
            request: Request, call: ProviderCall
        ) -> AsyncGenerator[list[Delta], None]:
            self.reservations, self._limit_reservations = [], []
            self._resuming = False
            request = self.limit_output(request)
            totals = _StreamTotals()
            try:
                async with aclosing(stream(request, call)) as batches:
                    async for deltas in batches:
                        totals.add(deltas)
                        yield deltas
            finally:
                self._settle(call, totals)

        return stream_and_settle

    def limit_output(self, request: Request) -> Request:
        """With a budget every request has an output limit, so that its cost has one."""
        has_bound = self._has_budget or self._has_cost_limit
        if not has_bound or _output_limit(request) is not None:
            return request
        return replace(request, max_output_tokens=self._max_output_tokens)

    def _settle(self, call: ProviderCall, totals: _StreamTotals) -> None:
        calls = [c for c in totals.calls(call) if c.started_at]
        whole = [_with_usage(each) for each in calls]
        costs = [self._cost(each, totals) for each in whole]
        for number, (entry, amount) in enumerate(self.reservations):
            cost = costs[number] if number < len(costs) else 0
            charged = amount if cost is None else cost
            is_resumed = self._resuming and number == 0
            if is_resumed and not (calls and calls[0].finish):
                continue  # the host may still bill it
            settle = partial(budget.settle, is_resumed=is_resumed)
            self._run_in_background(self.database.write(settle, entry, charged))
        for number, reservation in enumerate(self._limit_reservations):
            used, skipped = Amounts(), frozenset[int]()
            if number < len(costs):
                cost, tokens = costs[number], _tokens(whole[number])
                reserved = reservation.reserved_cost
                used = Amounts(tokens=tokens, cost=reserved if cost is None else cost)
                if self._alternatives:
                    skipped = self._silent_models(whole[number], totals)
            leases.settle(reservation, used, skipped=skipped)
        token = self._token
        if token is not None and (limit := token.tokens_per_minute):
            total = sum(map(_tokens, whole)) - self._taken
            self._taken = 0
            charge = Charge("tokens", limit, total)
            owner = token_bucket_owner(token)
            if settings.IS_SCALED:
                self._run_in_background(
                    self.database.read(rate_limits.charge, owner, charge)
                )
            else:
                rate_limits.charge(owner, charge)

    def _cost(self, call: ProviderCall, totals: _StreamTotals) -> int | None:
        """Billionths of a USD, by the prices of the model that answered; of the dearest
        one that may have, if that is not known."""
        route = call.route
        assert route is not None, "`stream` sets the route before it admits a request"
        if self._alternatives is None:
            cost = cost_of(call, route)
            if cost is None or cost >= MAX_COST:
                return None  # an impossible cost comes from wrong data: not charged
            return budget.nanos(cost)
        start, usage = call.start or StartDelta(), call.usage or UsageDelta()
        cost, _ = cost_of_choice(usage, start, self._choices(route))
        return None if cost is None else budget.nanos(cost)

    def _find_answering(self, route: Route, totals: _StreamTotals) -> Route | None:
        """`route`, or the model that its provider chose instead; None if it names none
        of them."""
        choices = self._choices(route)
        if len(choices) == 1:
            return route
        return find_model(totals.start.model if totals.start else "", choices)

    def _silent_models(
        self, call: ProviderCall, totals: _StreamTotals
    ) -> frozenset[int]:
        """The models that might have answered this call, and have not."""
        if call.route is None:
            return frozenset()
        answered = self._find_answering(call.route, totals)
        if answered is None:  # each of them may have been the one
            return frozenset()
        choices = self._choices(call.route)
        keys = {each.model_id for each in choices if each.model_id is not None}
        return frozenset(keys - {answered.model_id})

    def _run_in_background(self, write: Awaitable[Any]) -> None:
        asyncio.ensure_future(write).add_done_callback(_log_failure)


@dataclass(slots=True)
class _StreamTotals:
    """What the streamed deltas say about the last call."""

    start: StartDelta | None = None
    usage: UsageDelta | None = None
    finish: FinishDelta | None = None

    def add(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            match delta:
                case StartDelta():
                    self.start = delta
                case UsageDelta():
                    self.usage = merge_usage(self.usage, delta)
                case FinishDelta():
                    self.finish = delta

    def calls(self, call: ProviderCall) -> list[ProviderCall]:
        return calls_made(
            call,
            start=self.start or StartDelta(),
            usage=self.usage or UsageDelta(),
            finish=self.finish,
        )


def _limits_cost(limits: Applied) -> bool:
    return any(each.caps.cost is not None for each in limits)


def max_cost(request: Request, route: Route) -> int | None:
    """The maximum cost of a request in billionths of a USD; None without prices.

    Assumes the estimated prompt times a safety factor, and the longest answer allowed.
    """
    return highest_cost(*_longest(request), route, _tier_of(request, route))


def _tier_of(request: Request, route: Route) -> str | None:
    """The service tier that the request asks for, if the tier has other prices."""
    fields = request.forwarded.fields if request.forwarded else {}
    if fields.get("speed") == "fast":  # Anthropic's mode, whose answers name no tier
        return "fast"
    asked = fields.get("service_tier") or request.service_tier
    asked = asked or route.defaults.get("service_tier")
    return name_tier(asked, OPENAI_ALIASES)


def _longest(request: Request) -> tuple[int, int]:
    """The tokens of a prompt and an answer that are as long as they can be."""
    answer = (_output_limit(request) or DEFAULT_MAX_OUTPUT) * _count_of_answers(request)
    return PROMPT_SAFETY_FACTOR * estimate_prompt(request), answer


def highest_cost(
    tokens: int, answer: int, route: Route, tier: str | None = None
) -> int | None:
    """The cost of a prompt and an answer of so many tokens, cached or not, answered in
    this tier or in the usual one."""
    plain = UsageDelta(tokens, answer)
    # Writing a prompt to the provider's cache costs more than not caching it.
    usages = [plain, replace(plain, cache_write_tokens=tokens)]
    if tier:
        usages += [replace(each, tier=tier) for each in usages]
    costs = [cost_of(ProviderCall(usage=usage), route) for usage in usages]
    known = [cost for cost in costs if cost is not None]
    return budget.nanos(max(known)) if known else None


def _max_tokens(request: Request) -> int:
    """Tokens to reserve: the estimated prompt, and the answer's limit if it is known.
    A longer answer is counted when it ends."""
    answer = _output_limit(request) or RESERVED_OUTPUT
    return estimate_prompt(request) + answer * _count_of_answers(request)


def _release_reservation(done: asyncio.Future[Reservation]) -> None:
    if not done.cancelled() and done.exception() is None:
        leases.settle(done.result(), Amounts())


def _output_limit(request: Request) -> int | None:
    own = request.forwarded.max_output_tokens if request.forwarded else None
    return own or request.max_output_tokens


def _count_of_answers(request: Request) -> int:
    """The answers that a request of Chat Completions asks for at once."""
    count = request.forwarded.fields.get("n") if request.forwarded else None
    return count if isinstance(count, int) and count > 0 else 1


def _with_usage(call: ProviderCall) -> ProviderCall:
    """`call`, with the estimates of its row for the usage that its provider did not
    report."""
    usage = call.usage or UsageDelta()
    if not call.prompt_tokens and (call.error or usage.input_tokens is None):
        return replace(call, usage=UsageDelta(0, 0))  # refused, or not received
    whole, _ = estimate_usage(
        usage,
        prompt_tokens=call.prompt_tokens,
        answer_bytes=call.answer_bytes,
        has_ended=call.finish is not None,
    )
    return replace(call, usage=whole)


def _tokens(call: ProviderCall) -> int:
    return billed_tokens(call.usage or UsageDelta())


def _log_failure(done: asyncio.Future[Any]) -> None:
    if not done.cancelled() and (exc := done.exception()):
        # The sweep charges the reservation after its deadline.
        logger.error("a call could not be settled: %s", type(exc).__name__)
